"""Runs functions of a module as the ranks of a job, in an environment without PyTorch: real processes, real sockets."""

import importlib
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hocket.settings import Settings
from hocket.start.outcome import Outcome
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch

SETTINGS = Settings(timeout_s=60, start_timeout_s=60)


@dataclass
class Ended:
    """How a job ended: its outcome, all output, and by call what each rank returned (None: it did not get there)."""

    outcome: Outcome
    output: str
    returned: list[list[Any]]


def run(
    calls: Sequence[tuple[Any, ...]],
    world: int,
    directory: Path,
    *,
    hosts: Sequence[str | None] = (),
    environment: Mapping[str, str] | None = None,
    settings: Settings = SETTINGS,
) -> Ended:
    """Calls of `(module:name, argument…)`, one after the other on each rank; what they return must be JSON. `hosts`: by rank."""
    argv = [sys.executable, __file__, str(directory), json.dumps(calls)]
    own = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **(environment or {}),
    }
    out = io.BytesIO()
    specs = [ProcessSpec(argv=argv, host=host, environment=own) for host in (hosts or [None] * world)]
    outcome = launch(specs, settings=settings, out=out, err=out)
    files = [directory / f"{rank}.json" for rank in range(world)]
    ranks = [json.loads(each.read_text()) if each.exists() else [] for each in files]
    returned = [[rank[at] if at < len(rank) else None for rank in ranks] for at in range(len(calls))]
    return Ended(outcome, out.getvalue().decode(), returned)


def by_name(
    calls: Mapping[Any, tuple[Any, ...]], world: int, directory: Path, **options: Any
) -> dict[Any, list[Any]]:
    """The same for a job that must end well: by name, what each rank returned."""
    ended = run(list(calls.values()), world, directory, **options)
    assert ended.outcome.code == 0, ended.output
    return dict(zip(calls, ended.returned, strict=True))


def main() -> None:
    """One rank. What it has is written after each call, so that a rank that is killed leaves what it had."""
    directory, calls = Path(sys.argv[1]), json.loads(sys.argv[2])
    results = []
    for function, *arguments in calls:
        module, _, name = function.partition(":")
        results.append(getattr(importlib.import_module(module), name)(*arguments))
        (directory / f"{os.environ['HOCKET_RANK']}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
