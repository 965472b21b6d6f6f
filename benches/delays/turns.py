"""Contenders on emulated hosts, a rank on each: they train in turns."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benches.delays.contest import Contender, Course, Measured
from benches.emulated import in_emulation
from benches.uplinks import Uplinks
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.profile import Profile


def in_turns(
    cluster: Cluster,
    profile: Profile,
    contenders: Sequence[Contender],
    course: Course,
    uplinks: Uplinks | None = None,
) -> list[Measured]:
    """Measure the contenders. `uplinks`: it counts meanwhile. PeerError: there are no network namespaces."""
    with tempfile.TemporaryDirectory(prefix="hocket-delays-") as directory:
        files.write(Path(directory) / "profile.json", profile)
        (Path(directory) / "contenders.json").write_bytes(msgspec.json.encode(contenders))
        (Path(directory) / "course.json").write_bytes(msgspec.json.encode(course))
        argv = [sys.executable, "-m", "benches.delays.rank", directory]
        names = [host.name for host in cluster.hosts]
        return msgspec.convert(in_emulation(cluster, names, argv, uplinks=uplinks), list[Measured])
