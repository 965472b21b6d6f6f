"""Measurements by which the ranks of a job decide: times of algorithms, and the network, from files or from a look at it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.tuning import Tuning
from hocket.job import tuning
from hocket.job.first_file import of_rank_0
from hocket.measure.quick import known_cluster

if TYPE_CHECKING:
    from hocket.training.prepared import Stay


class Measurements:
    """Measurements, equal on all ranks of a job that have met."""

    def __init__(self, process: Stay) -> None:
        self._process = process
        self._looked = False

    @cached_property
    def tuning(self) -> Tuning:
        """Tuning for choosing algorithms; the first use fetches rank 0's, on every rank."""
        return tuning.agreed(self._process.job)

    @cached_property
    def cluster(self) -> Cluster | None:
        """Known hosts and network; the first use fetches rank 0's, on every rank."""
        job = self._process.job
        return of_rank_0(job, "cluster", job.settings.cluster, Cluster)

    @property
    def network(self) -> Cluster | None:
        """Known cluster, or if rank 0 has no file, the result of a quick look at the network, on first use, on every rank."""
        if not self._looked:
            self.cluster = known_cluster(self._process.job, self._process.engine, self.cluster)
            self._looked = True
        return self.cluster

    def recall(self, cluster: Cluster) -> None:
        """Take the last job's findings about the hosts as known, if rank 0 has no file: no rank looks at the start."""
        if self.cluster is None and not self._looked:
            self.cluster, self._looked = cluster, True
