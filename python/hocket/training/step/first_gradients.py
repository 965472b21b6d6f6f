"""Warning, or error, if ranks train on the same batches, as with one seed and no sampler: then their first gradients have the same
bits.

Each rank stores digests of the gradients that it made itself before it votes. Once votes are counted, all digests are stored: rank
0 compares them, and nobody waits.
"""

from __future__ import annotations

import itertools
import logging
import zlib
from collections.abc import Callable, Sequence

from hocket.errors import RendezvousError, UsageError
from hocket.job.alike import named
from hocket.job.rendezvous import Job
from hocket.training.memory.framework import Looks

STEPS_MAX = 4
"""Largest number of steps that are compared."""
ALIKE = 2
"""Consecutive steps in which gradients must be the same: in one step, batches of few samples may be the same by chance."""
ZERO, UNKNOWN = 0, -1
"""Values in place of a digest: for a gradient that is zero everywhere, and for one that is not finite."""

log = logging.getLogger("hocket.training")

_numbers = itertools.count()
"""Numbers of this process's models; equal on all ranks, which distribute their models in the same order."""


class FirstGradients:
    """Comparison of the first gradients of one model."""

    def __init__(self, looks: Looks, job: Job) -> None:
        """Watch, unless this rank is alone or ranks train on the same batches on purpose."""
        self._job = job
        self._key = f"gradients/{next(_numbers)}"
        self._made: dict[str, int] = {}
        self._steps: list[int] = []
        self._step = -1
        self._stop: Callable[[], None] | None = None
        if job.world > 1 and job.settings.on_same_batches != "off":
            self._stop = looks.watch_gradients(self._made.__setitem__)
        self._looks = job.rank == 0 and self._stop is not None

    def end(self) -> None:
        """Stop watching."""
        self._looks = False
        if self._stop is not None:
            self._stop()
            self._stop = None

    def stepped(self, step: int) -> None:
        """Store digests: a backward has ended, and this rank is about to vote, for the first time in that step or again."""
        if self._stop is None or step == self._step:
            return
        self._step = step
        self._steps.append(_combined(self._made))
        self._made.clear()
        try:
            self._job.store.set(f"{self._key}/{self._job.rank}", self._steps)
        except RendezvousError:
            # The step itself reports errors better.
            self._looks = False
        if len(self._steps) == STEPS_MAX:
            self._stop()
            self._stop = None

    def counted(self) -> None:
        """Compare digests once votes are counted: where ranks step together, all have stored theirs by now.

        UsageError: ranks train on the same batches, and the job is to stop then.
        """
        if not self._looks or not self._steps:
            return
        job = self._job
        try:
            given = [job.store.get(f"{self._key}/{rank}", 0.0) for rank in range(job.world)]
        except RendezvousError:
            # Ranks that do not wait for one another have not come as far yet.
            self._looks = self._stop is not None
            return
        found = judged([list(each) for each in zip(*given, strict=False)])
        self._looks = found is None and self._stop is not None
        if not found:
            return
        if job.settings.on_same_batches == "stop":
            raise UsageError(text_of(found, job.hosts))
        log.warning("%s", text_of(found, job.hosts))


def judged(steps: Sequence[Sequence[int]]) -> list[tuple[int, ...]] | None:
    """Return, from digests by step and rank, groups of ranks that train on the same batches; None: it cannot be told yet.

    >>> judged([[ZERO, ZERO, 3], [4, 4, 5]]), judged([[ZERO, ZERO, 3], [4, 4, 5], [6, 6, 7]]), judged([[1, 2, 3]])
    (None, [(0, 1)], [])
    """
    for at, step in enumerate(steps):
        alike = twins(step)
        if not alike and all(each not in (ZERO, UNKNOWN) for each in step):
            return []
        again = alike.intersection(*map(twins, steps[at + 1 : at + ALIKE]))
        if again and len(steps) >= at + ALIKE:
            return sorted(again)
    return None


def _combined(made: dict[str, int]) -> int:
    """Return one digest of all gradients of a step."""
    if UNKNOWN in made.values():
        return UNKNOWN
    if not any(made.values()):
        return ZERO
    text = repr(sorted(made.items())).encode()
    # Two checksums of 32 bits make one of 64.
    return zlib.crc32(text) << 32 | zlib.adler32(text) | 1


def twins(steps: Sequence[int]) -> set[tuple[int, ...]]:
    """Return groups of ranks whose gradients are the same.

    >>> twins([7, 8, 7, ZERO, ZERO, UNKNOWN, UNKNOWN])
    {(0, 2)}
    """
    ranks: dict[int, list[int]] = {}
    for rank, each in enumerate(steps):
        if each not in (ZERO, UNKNOWN):
            ranks.setdefault(each, []).append(rank)
    return {tuple(each) for each in ranks.values() if len(each) > 1}


def text_of(groups: Sequence[Sequence[int]], hosts: Sequence[str]) -> str:
    """Return the text of the warning and of the error.

    >>> print(text_of([(0, 2)], "aab").splitlines()[0])
    ranks 0, 2 on a, b train on the same batches: their gradients have the same bits in the first steps, and one of them would do
    """
    each = "; ".join(named(ranks, hosts) for ranks in groups)
    return (
        f"{each} train on the same batches: their gradients have the same bits in the first steps, and one of them would do\n"
        "hint: `hk.batches(model, dataset, batch_size)` gives each rank its own part, as a DistributedSampler does that knows the "
        "job's ranks; random data needs a seed of each rank's own. HOCKET_ON_SAME_BATCHES=off says that it is meant"
    )
