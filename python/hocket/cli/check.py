"""`hocket check`: run a training script with and without merged or late gradients, and compare what it learns."""

from __future__ import annotations

import io
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import click
import msgspec
from rich.table import Table

from hocket import extras
from hocket.artefacts import files, trace
from hocket.artefacts.local import named
from hocket.artefacts.plan import Plan, Schedule
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.cli.shared.options import (
    json_option,
    output_option,
    plan_option,
    promise_option_of,
    world_option,
)
from hocket.cli.shared.output import publish
from hocket.errors import Error, UsageError
from hocket.planning import admission, delays, schedules
from hocket.planning.default import by_hosts, default_plan
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.start.script import argv_of
from hocket.tools.analysis.paired import SEEDS_MAX, Compared, compared, settled

DEFAULT = Promise("delayed", delay=1)

SYNCHRONOUS = "synchronous"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the comparison. `retreats`: actions of the guard and the sentinel in the runs, by seed."""

    world: int
    steps: int
    schedule: Schedule
    losses: Compared
    retreats: tuple[tuple[str, ...], ...]
    guard: str


@click.command("check", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@world_option("Ranks, on this machine.", least=2, default=2)
@click.option(
    "--steps",
    type=click.IntRange(20),
    default=200,
    show_default=True,
    metavar="N",
    help="Steps of each run; the mean loss of the last tenth counts.",
)
@click.option(
    "--seeds",
    type=click.IntRange(2, SEEDS_MAX),
    default=3,
    show_default=True,
    metavar="N",
    help="Runs of each way.",
)
@promise_option_of(str(DEFAULT))
@plan_option("Plan file (JSON) whose schedule is compared.  [default: one for the promise]")
@output_option("Also write the result here (JSON).")
@json_option
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is a module's name.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    *,
    world: int,
    steps: int,
    seeds: int,
    promise: Promise | None,
    plan_path: Path | None,
    output: Path | None,
    as_json: bool,
    as_module: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Train SCRIPT both ways with several seeds: synchronously, and with merged or late gradients; compare the losses.

    SCRIPT is a Python script that logs its loss: `hk.log(model, loss=…)`. It is ended after so many steps. By default, means
    are an iteration late, and own gradients go first; `--promise delayed,delay=1,merge=2` and `--promise merged,merge=2` are
    other ways, and so are `--promise uncorrected,uncorrected=1`, with nothing in place of late gradients, and `--promise
    local,local=30`, with ranks that step alone.

    Example: hocket check --steps 200 --seeds 3 train.py --batch 32
    """
    extras.need("torch", "hocket check")
    if plan_path is not None and promise is not None:
        raise UsageError("--plan and --promise: a plan has its own schedule\nhint: leave one of them out")
    if promise is not None and not promise.turns:
        raise UsageError(f"--promise {promise}: it allows neither merged nor late gradients")
    given = None if plan_path is None else _given(plan_path, world)
    own = _argv(script, arguments, as_module=as_module)
    with tempfile.TemporaryDirectory(prefix="hocket-check-") as made:
        directory = Path(made)
        profile = _profiled(own, world, directory)
        plan = given or _imposed(profile, world, promise or DEFAULT)
        checks = admission.judged(plan.schedule, profile.learning)
        plans = _both(plan, directory)
        ways = _ways(plan.schedule)
        by_way: dict[str, list[float]] = {way: [] for way in ways}
        retreats = []
        for seed in range(seeds):
            for way, path in zip(ways, plans, strict=True):
                click.echo(f"seed {seed + 1} of {seeds}, {way}", err=True)
                run = directory / f"{way} {seed}".replace(" ", "-")
                _run([*_seeded(own, seed)], world, Settings(plan=str(path), trace=str(run), steps_max=steps))
                by_way[way].append(settled(list(_losses(run, world, steps))))
                if way != SYNCHRONOUS:
                    retreats.append(tuple(each.why for each in trace.read(run).changes()))
    found = Found(
        world=world,
        steps=steps,
        schedule=plan.schedule,
        losses=compared(*by_way.values()),
        retreats=tuple(retreats),
        guard=admission.said(checks, plan.schedule, profile.learning).strip(),
    )
    publish(_shown(found), found, as_json=as_json, output=output)


def _argv(script: str, arguments: Sequence[str], *, as_module: bool) -> list[str]:
    argv = argv_of(script, arguments, interpreter="python", as_module=as_module, elsewhere=False)
    if argv[0] != "python":
        raise UsageError(f"{script} is no Python script: seeds are set in the interpreter that runs it")
    return argv[1:]


def _seeded(own: Sequence[str], seed: int) -> list[str]:
    return ["-m", "hocket.torch.seeded", str(seed), *own]


def _given(path: Path, world: int) -> Plan:
    """Read a plan with a schedule for `world` ranks. UsageError: the plan is another one."""
    plan = files.read(path, Plan)
    if not plan.schedule.turns:
        raise UsageError(f"{path}: its gradients are neither merged nor late, so there is nothing to compare")
    if plan.world != world:
        raise UsageError(f"{path} is for {plan.world} ranks\nhint: -n {plan.world}")
    return plan


def _imposed(profile: Profile, world: int, promise: Promise) -> Plan:
    gradients = sorted(profile.gradients, key=lambda each: each.ready_s)
    plain = default_plan(gradients, by_hosts(["here"] * world))
    return delays.imposed(plain, promise, admission.rule_of(profile.learning))


def _profiled(own: Sequence[str], world: int, directory: Path) -> Profile:
    click.echo("profiling some steps", err=True)
    path = directory / "profile.json"
    _run([*_seeded(own, 0)], world, Settings(profile_out=str(path)))
    if not path.exists():
        raise UsageError(
            f"{own[-1] if own[0] == '-m' else own[0]} ended before enough steps were measured\n"
            "hint: it must call hk.distribute(model, optimizer) and take at least 10 steps"
        )
    return files.read(path, Profile)


def _both(plan: Plan, directory: Path) -> tuple[Path, Path]:
    """Write the plan without and with its schedule; return both files."""
    plain = msgspec.structs.replace(plan, schedule=Schedule(overlap=plan.schedule.overlap), safer=())
    paths = directory / "synchronous.json", directory / "scheduled.json"
    for path, each in zip(paths, (plain, plan), strict=True):
        files.write(path, each)
    return paths


def _run(argv: Sequence[str], world: int, settings: Settings) -> None:
    said = io.BytesIO()
    outcome = launch(
        [ProcessSpec(argv=[sys.executable, *argv])] * world, settings=settings, out=said, err=said
    )
    if outcome.failures:
        raise Error(f"the script failed: {outcome.failures[0]}")


def _losses(directory: Path, world: int, steps: int) -> Iterator[float]:
    """Yield mean losses over ranks, step by step. UsageError: the script logs none, or ends early."""
    read = trace.read(directory)
    by_rank = [
        [float(row["loss"]) for row in read.metrics(rank) if isinstance(row.get("loss"), (int, float))]
        for rank in range(world)
    ]
    count = min(map(len, by_rank))
    if count == 0:
        raise UsageError(
            "the script logs no loss, so there is nothing to compare\nhint: hk.log(model, loss=loss)"
        )
    if all(len(each) < steps // 2 for each in by_rank):
        raise UsageError(
            f"the script logged {count} losses in at most {steps} steps: too few to compare\n"
            "hint: log one in each step, train for more of them, or ask for fewer --steps"
        )
    for at in range(count):
        yield sum(each[at] for each in by_rank) / world


def _shown(found: Found) -> list[Table | str]:
    losses = found.losses
    title = f"loss on {found.world} ranks, mean of the last tenth of {found.steps} steps"
    table = Table("seed", *_ways(found.schedule), "difference", title=title)
    for seed, (base, other) in enumerate(zip(losses.base, losses.other, strict=True), 1):
        table.add_row(str(seed), _number(base), _number(other), f"{other - base:+.4g}")
    said: list[Table | str] = [table, _said(found), found.guard]
    said += [f"Seed {seed}: {why}" for seed, all_of in enumerate(found.retreats, 1) for why in all_of]
    if len(set(losses.base)) == 1:
        said.append(
            "All seeds give the same losses: the script's random numbers do not depend on torch's, numpy's or Python's."
        )
    return said


def _said(found: Found) -> str:
    losses = found.losses
    if not math.isfinite(losses.difference):
        which = _ways(found.schedule)[losses.difference > 0]
        return f"A {which} run has diverged: its loss is no number any more."
    average = f"{abs(losses.difference):.4g} {'higher' if losses.difference > 0 else 'lower'}"
    base = fmean(losses.base)
    if base:
        average += f" ({abs(losses.difference / base):.1%})"
    between = f"with 95 % confidence, the difference is between {losses.low:+.4g} and {losses.high:+.4g}"
    verdict = (
        "so small a difference may be chance"
        if not losses.shown
        else f"after as many steps, this script trains {'worse' if losses.difference > 0 else 'better'} so"
    )
    return f"With {_schedule(found.schedule)}, the loss is {average} on average; {between}: {verdict}."


def _ways(schedule: Schedule) -> tuple[str, str]:
    """Return names of both ways to train."""
    return SYNCHRONOUS, "merged or late" if schedule.outer is None else "alone"


def _schedule(schedule: Schedule) -> str:
    if schedule.outer is not None:
        return f"ranks {named(schedule)}"
    words = []
    if (merged := schedules.merge_of(schedule)) > 1:
        words.append(f"updates of up to {merged} iterations")
    if late := schedule.delay_max:
        words.append(f"gradients applied up to {late} iteration{'s' if late > 1 else ''} late")
    return " and ".join(words) or "synchronous updates"


def _number(value: float) -> str:
    return f"{value:.4g}"
