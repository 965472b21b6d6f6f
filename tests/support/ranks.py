"""Runs a function of a test module as the ranks of a job: real processes (`warm`), real sockets, the launcher as users have it."""

import io
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hocket.settings import Settings
from hocket.start.outcome import Outcome
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.support import warm


@dataclass
class Ended:
    """How a job ended: its outcome, all output, and what each rank returned (None: it did not get there)."""

    outcome: Outcome
    output: str
    returned: list[Any]


class Shown(io.BytesIO):
    """Output that is kept, and shown as it comes."""

    def write(self, some: Any) -> int:
        sys.stderr.write(bytes(some).decode(errors="replace"))
        sys.stderr.flush()
        return super().write(some)


def run(
    function: str,
    world: int,
    directory: Path,
    *arguments: str,
    settings: Settings | None = None,
    out: io.BytesIO | None = None,
) -> Ended:
    """`function` is `module:name`, called with `arguments` on each of `world` ranks; what it returns must be JSON."""
    ended = in_turn([(function, *arguments)], world, directory, settings=settings, out=out)
    ended.returned = [None if each is None else each[0] for each in ended.returned]
    return ended


def in_turn(
    calls: Sequence[tuple[str, ...]],
    world: int,
    directory: Path,
    *,
    settings: Settings | None = None,
    members_min: int | None = None,
    out: io.BytesIO | None = None,
) -> Ended:
    """Several of them, one after the other in one job: each rank returns a list. `members_min`: the job is elastic. `out`: what
    keeps their output."""
    argv = warm.command(Path(__file__), str(directory), json.dumps(calls))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment = {
            "GLOO_PORT": str(free.getsockname()[1]),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": "1",
        }
    out = out or io.BytesIO()
    specs = [ProcessSpec(argv=argv, environment=environment)] * world
    settings = settings or Settings(timeout_s=30, start_timeout_s=30)
    outcome = launch(specs, settings=settings, members_min=members_min, out=out, err=out)
    files = [directory / f"{rank}.json" for rank in range(world)]
    returned = [json.loads(each.read_text()) if each.exists() else None for each in files]
    return Ended(outcome, out.getvalue().decode(), returned)


def by_name(
    calls: Mapping[Any, tuple[str, ...]], world: int, directory: Path, *, settings: Settings | None = None
) -> dict[Any, list[Any]]:
    """The same for a job that must end well: by name, what each rank returned."""
    ended = in_turn(list(calls.values()), world, directory, settings=settings)
    assert ended.outcome.code == 0, ended.output
    return dict(zip(calls, map(list, zip(*ended.returned, strict=True)), strict=True))


def main() -> None:
    import importlib

    import torch

    torch.set_num_threads(1)
    directory, calls = sys.argv[1], json.loads(sys.argv[2])
    # For tests whose ranks end each other.
    (Path(directory) / f"{os.environ['HOCKET_RANK']}.process").write_text(str(os.getpid()))
    results = []
    for function, *arguments in calls:
        module, _, name = function.partition(":")
        results.append(getattr(importlib.import_module(module), name)(*arguments))
    if torch.distributed.is_initialized():
        # A rank of Gloo that ends while another still talks takes that one down.
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    (Path(directory) / f"{os.environ['HOCKET_RANK']}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
