"""Launcher of an elastic job of `python -m benches elastic`, on one of the emulated hosts, like `hocket run --elastic`.

`python -m benches.elastic.launcher FILE`, with settings from the environment. FILE: a `Wanted`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from hocket.start.processes import ProcessSpec
from hocket.start.run import launch


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """`hosts`: each rank's host, with the command that runs a program there. `members_min`: None if the job is not elastic."""

    store: str
    hosts: tuple[tuple[str, tuple[str, ...]], ...]
    argv: tuple[str, ...]
    environment: dict[str, str]
    members_min: int | None
    members_max: int
    journal: str | None = None


def main() -> None:
    """Launch the job, and wait for its end."""
    wanted = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Wanted)
    processes = [
        ProcessSpec(argv=wanted.argv, host=host, prefix=prefix, environment=wanted.environment)
        for host, prefix in wanted.hosts
    ]
    outcome = launch(
        processes,
        store=wanted.store,
        members_min=wanted.members_min,
        members_max=wanted.members_max,
        journal=None if wanted.journal is None else Path(wanted.journal),
    )
    sys.exit(outcome.code)


if __name__ == "__main__":
    main()
