"""`hocket run`: start a training script on this machine, or over ssh on others, as the ranks of one job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from hocket import extras, logs
from hocket.artefacts.promise import Promise
from hocket.cli.shared.elastic import ELASTIC, Elastic
from hocket.cli.shared.options import (
    Remote,
    cluster_option,
    dir_option,
    plan_option,
    promise_option,
    remote_options,
    trace_bounds_options,
    tuning_option,
    world_option,
)
from hocket.cli.shared.outcome import end
from hocket.cli.shared.values import SECONDS
from hocket.errors import UsageError
from hocket.parameter_server.choice import ParameterServer
from hocket.refusals import HELPERS, SERVERS, refused
from hocket.start import hosts as hosts_file
from hocket.start.leash import cores
from hocket.start.processes import ProcessSpec
from hocket.start.resume import resume
from hocket.start.run import launch
from hocket.start.script import argv_of
from hocket.tools.run.checks import check, settings_of

HELP = ("-m", "hocket.training.servers.helper_rank")
"""Program of a helper, in place of the script."""

SERVE = ("-m", "hocket.torch.server_rank")
"""Program of a parameter server, in place of the script."""


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@world_option("Number of ranks.  [default: 1, or all slots of --hosts]")
@remote_options
@plan_option("Plan file (JSON) to run.")
@promise_option
@click.option(
    "--policy", metavar="POLICY", help="Policy to run: a ready-made one's name, or FILE.py[:CLASS]."
)
@click.option(
    "--search",
    metavar="TIME",
    help="Try plans while training for so long, such as 20m, 90s or 1h, and keep the fastest.",
)
@click.option(
    "--builder",
    metavar="BUILDER",
    help="Let --search try this builder's plans, too: FILE.py[:CLASS], or a ready-made one's name, with settings such as "
    "all-reduce,chunk=64.",
)
@click.option(
    "--servers",
    type=click.IntRange(0),
    metavar="N",
    help="Parameter servers besides the workers; -n counts the workers alone.",
)
@click.option(
    "--helpers",
    type=click.IntRange(0),
    metavar="N",
    help="Ranks besides the workers that train nothing and own what the plan gives them; -n counts the workers alone.",
)
@click.option(
    "--staleness",
    metavar="K",
    help="Iterations that workers of parameter servers may be apart: 0 (synchronous), K, or `any`.",
)
@cluster_option(
    "Cluster file (TOML): the default plan is made for it, and each path gets as many connections as it needs."
)
@tuning_option(
    "Tuning file (JSON) that a policy's algorithms are chosen by.  [default: the one that comes with Hocket]"
)
@dir_option("--trace", "trace_path", text="Write a trace directory for `hocket report`.")
@trace_bounds_options
@dir_option(
    "--dumps", "dumps_path", text="When the job fails, write there what each rank had called, for `fr_trace`."
)
@click.option(
    "--threads", type=click.IntRange(1), metavar="N", help="Native threads of each rank.  [default: 1]"
)
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    metavar="SECONDS",
    help="Longest wait for other ranks in a step.  [default: 300]",
)
@click.option("--tls", is_flag=True, help="Encrypt what travels between hosts, as HOCKET_TLS=1.")
@click.option(
    "--elastic",
    type=ELASTIC,
    metavar="MIN:MAX[,WORD...]",
    help="Go on without ranks that are lost while MIN are left, and let others join up to MAX; -n of them start.  [default: MAX]",
)
@click.option(
    "--resume",
    "resumed",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Go on as the launcher of the job with that journal, whose own has died; no SCRIPT.",
)
@click.option(
    "--metrics",
    metavar="[ADDRESS:]PORT",
    help="Serve the job's metrics to Prometheus there; on this machine alone without ADDRESS, else with HOCKET_METRICS_TOKEN.",
)
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Log more: `-v` for HOCKET_LOG=info, `-vv` for debug, here and on the ranks.",
)
@click.option("-q", "--quiet", is_flag=True, help="Log errors alone: HOCKET_LOG=error.")
@click.option("--quiet-others", is_flag=True, help="Show rank 0's output alone, as it is.")
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is a module's name.")
@click.argument("script", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    *,
    world: int | None,
    remote: Remote,
    plan_path: Path | None,
    promise: Promise | None,
    policy: str | None,
    search: str | None,
    builder: str | None,
    servers: int | None,
    helpers: int | None,
    staleness: str | None,
    cluster_path: Path | None,
    tuning_path: Path | None,
    trace_path: Path | None,
    trace_steps: str | None,
    trace_bytes: int | None,
    dumps_path: Path | None,
    threads: int | None,
    timeout_s: float | None,
    tls: bool,
    elastic: Elastic | None,
    resumed: Path | None,
    metrics: str | None,
    verbose: int,
    quiet: bool,
    quiet_others: bool,
    as_module: bool,
    script: str | None,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT as the ranks of one job; its options come after it.

    SCRIPT is a Python script, or any program or command. Ranks find torchrun's variables too: RANK, WORLD_SIZE, MASTER_ADDR …

    \b
    Words of --elastic after MIN:MAX, separated by commas:
      respawn=N        start another process in the place of each lost rank, N at most, all ranks together
      rejoin=SECONDS   fewer than MIN ranks wait so long for others; else 0, with respawn 300
      on-refusal=WHAT  if the policy refuses the ranks that are left: `means` (plain ones, the default) or `end`
      journal=FILE     keep there what is decided: ranks outlive this launcher, and --resume goes on in its place
      alone=SECONDS    with a journal: how long ranks train on when this launcher has died; else 300

    \b
    Example: hocket run -n 4 --plan plan.json --trace run1 train.py --epochs 3
    Example: hocket run --elastic 2:4,respawn=10 train.py
    Example: hocket run -n 4 --trace run2 --trace-steps 2:6 train.py
    Example: hocket run -n 4 --tls train.py
    """
    if resumed is not None:
        if script is not None or elastic is not None:
            raise UsageError("--resume goes on with a job as it is\nhint: give the journal alone")
        end(lambda: resume(resumed))
    if script is None:
        raise click.UsageError("Missing argument 'SCRIPT'.")
    if elastic is not None:
        elastic.refuse_alone("give journal=FILE as well", journal=elastic.journal)
    argv = argv_of(
        script,
        arguments,
        interpreter=remote.interpreter,
        as_module=as_module,
        elsewhere=remote.hosts is not None,
    )
    given: dict[str, Any] = {
        "plan": plan_path,
        "promise": promise and str(promise),
        "policy": policy,
        "search": search,
        "builder": builder,
        "servers": servers,
        "helpers": helpers,
        "staleness": staleness,
        "cluster": cluster_path,
        "tuning": tuning_path,
        "trace": trace_path,
        "trace_steps": trace_steps,
        "trace_bytes": trace_bytes,
        "dumps": dumps_path,
        "threads": threads,
        "timeout_s": timeout_s,
        "tls": tls or None,
        "metrics": metrics,
        "log": _log(verbose, quiet=quiet),
        **(elastic.settings() if elastic else {}),
    }
    settings = settings_of(given)
    logs.apply(settings.log)
    check(settings, given, here=remote.hosts is None)
    if settings.servers and settings.helpers:
        raise refused(HELPERS, SERVERS, where="--servers and --helpers")
    if elastic is not None:
        world = elastic.world(world, settings)
    serving = ParameterServer.of(settings)
    if serving:
        extras.need("torch", "--servers")
    beside = [remote.interpreter, *(SERVE if serving else HELP)]
    store = remote.store
    if remote.hosts is None:
        processes = [ProcessSpec(argv=argv)] * (world or 1)
        processes += [ProcessSpec(argv=beside)] * settings.besides
    else:
        slots = hosts_file.read(remote.hosts)
        names = hosts_file.place(slots, world)
        others = hosts_file.place_servers(slots, len(names), settings.besides)
        processes = [*remote.processes(names, argv), *remote.processes(others, beside)]
        store = remote.store_for(names)
    _say_threads(processes)
    end(
        lambda: launch(
            processes,
            settings=settings,
            store=store,
            quiet_others=quiet_others,
            members_min=elastic.members[0] if elastic else None,
            members_max=elastic.members[1] if elastic else None,
            respawn=elastic.respawn if elastic else 0,
            journal=elastic.journal if elastic else None,
        )
    )


def _log(verbose: int, *, quiet: bool) -> str | None:
    if verbose and quiet:
        raise UsageError("-v and -q: one logs more, the other less\nhint: leave one of them out")
    return "error" if quiet else (None, "info", "debug")[min(verbose, 2)]


def _say_threads(processes: list[ProcessSpec]) -> None:
    """Warn about the threads of every rank's arithmetic: ranks that all take all cores slow each other down."""
    if "OMP_NUM_THREADS" in os.environ or len(processes) == 1:
        return
    if processes[0].remote:
        shown = "its host's cores / its host's ranks"
    else:
        count = cores()
        shown = f"{max(1, count // len(processes))} ({count} core{'s' * (count > 1)}, {len(processes)} ranks)"
    click.echo(f"hocket: OMP_NUM_THREADS of each rank: {shown}; set it to change that", err=True)
