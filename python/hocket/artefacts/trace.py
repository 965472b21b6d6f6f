"""What a run leaves behind: a directory with `run.json`, `rank-N.hktrace` (events) and `metrics-N.jsonl` (what was logged)."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile

RUN_FILE = "run.json"


class LoadedProgram(Struct, frozen=True, kw_only=True):
    """A program of the run: its number, label and the bucket whose gradients it reduces (None: none)."""

    program: int
    label: str = ""
    bucket: int | None = None
    bytes: int = 0


class RunInfo(Struct, frozen=True, kw_only=True):
    """What was run: `hosts[rank]` is the host of each rank."""

    version: int = 1
    world: int
    hosts: tuple[str, ...]
    script: str = ""
    started_at: str = ""
    plan: Plan | None = None
    cluster: Cluster | None = None
    profile: Profile | None = None
    programs: tuple[LoadedProgram, ...] = ()


def write_run(directory: Path, info: RunInfo) -> None:
    """Write `run.json`; the directory is made if missing."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / RUN_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n")


def metrics_file(directory: Path, rank: int) -> Path:
    """Where a rank's logged values go, one JSON object a line."""
    return directory / f"metrics-{rank}.jsonl"
