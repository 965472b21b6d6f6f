"""`hocket coordinator`: coordinate an elastic job whose ranks something else starts: SLURM, Kubernetes, `mpirun`, or hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from hocket.artefacts.writing import makeable
from hocket.cli.shared.elastic import ELASTIC, Elastic
from hocket.cli.shared.options import dir_option, file_option, world_option
from hocket.cli.shared.outcome import end
from hocket.cli.shared.values import SECONDS
from hocket.errors import UsageError
from hocket.settings import Settings
from hocket.start.coordinator import Wanted, checked_secret, coordinate, secret_in

WAIT_S = 3600.0


@click.command("coordinator")
@click.option(
    "--elastic",
    type=ELASTIC,
    required=True,
    metavar="MIN:MAX[,WORD...]",
    help="Go on without ranks that are lost while MIN are left, and let others join up to MAX.",
)
@click.option(
    "--listen",
    "address",
    required=True,
    metavar="ADDRESS:PORT",
    help="Name or address by which ranks reach this machine; port 0: a free one.",
)
@world_option("Number of ranks that begin: the first that come.  [default: MAX]")
@file_option("--journal", text="Keep there what is decided, and go on from there if the file exists.")
@file_option("--secret-file", text="File with the job's secret, hexadecimal.  [default: HOCKET_SECRET]")
@click.option(
    "--wait",
    "wait_s",
    type=SECONDS,
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="Longest time until so many ranks have come.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    metavar="SECONDS",
    help="Longest wait of ranks for others in a step.  [default: 300]",
)
@dir_option("--trace", "trace_path", text="Write changes of members there, for `hocket report`.")
def command(
    *,
    elastic: Elastic,
    address: str,
    world: int | None,
    journal: Path | None,
    secret_file: Path | None,
    wait_s: float,
    timeout_s: float | None,
    trace_path: Path | None,
) -> None:
    """Coordinate an elastic job whose ranks come by HOCKET_COORDINATOR=ADDRESS:PORT, whatever starts them.

    The first ranks that come begin the job. A rank that comes later, such as one that its launcher has started again, joins.
    Beyond this machine, ranks need the job's HOCKET_SECRET. The exit code is 0 when all scripts have ended.

    \b
    Words of --elastic after MIN:MAX, separated by commas:
      rejoin=SECONDS   fewer than MIN ranks wait so long for others; else 0
      on-refusal=WHAT  if the policy refuses the ranks that are left: `means` (plain ones, the default) or `end`
      alone=SECONDS    with a journal: how long ranks train on when this process has died; else 300

    Example: hocket coordinator --elastic 2:4 --listen node0:29400 --journal run.journal
    """
    for name, given, hint in (
        ("respawn", elastic.respawn, "whatever starts the ranks starts others, and they join"),
        ("journal", elastic.journal, "give --journal FILE"),
    ):
        if given:
            raise UsageError(f"--elastic: `{name}=` is a word of `hocket run`\nhint: {hint}")
    elastic.refuse_alone("give --journal as well", journal=journal)
    given_settings: dict[str, Any] = {
        **elastic.settings(),
        "timeout_s": timeout_s,
        "trace": None if trace_path is None else str(trace_path.absolute()),
    }
    given_settings = {name: value for name, value in given_settings.items() if value is not None}
    settings = dataclasses.replace(Settings.from_environment(), **given_settings)
    if settings.trace is not None:
        makeable(Path(settings.trace))
    founders = elastic.world(world, settings)
    wanted = Wanted(
        address=address,
        secret=_secret(secret_file, settings),
        founders=founders,
        members_min=elastic.members[0],
        members_max=elastic.members[1],
        journal=journal,
        wait_s=wait_s,
    )
    end(lambda: coordinate(wanted, settings))


def _secret(file: Path | None, settings: Settings) -> str | None:
    if file is not None:
        return secret_in(file)
    return None if settings.secret is None else checked_secret(settings.secret, "HOCKET_SECRET")
