"""`hocket check`: run a training script with and without merged or late gradients, and compare when it comes to one loss."""

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
from hocket.artefacts.plan import Plan, Schedule, Traced
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
from hocket.planning.reason import seconds
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.start.script import argv_of
from hocket.tools.analysis.paired import SEEDS_MAX, WINDOW, Compared, compared, settled
from hocket.tools.analysis.to_loss import Curve, Ratio, ToLoss, to_loss

DEFAULT = Promise("delayed", delay=1)

SYNCHRONOUS = "synchronous"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the comparison.

    Attributes:
        way: name of the way that is compared with the synchronous one, with `schedule` and `policies`.
        losses: after as many steps.
        to_loss: times to the loss of the synchronous run.
        to_both: the same, or to the last loss of the other way where that is higher, which both reach.
        retreats: actions of the guard and the sentinel in the runs, by seed.
    """

    world: int
    steps: int
    way: str
    schedule: Schedule
    policies: tuple[str, ...]
    losses: Compared
    to_loss: ToLoss
    to_both: ToLoss
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
    help="Steps of each run.",
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
@plan_option("Plan file (JSON) that is compared.  [default: one for the promise]")
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
    """Train SCRIPT both ways with several seeds, synchronously and with merged or late gradients; compare the time to the same
    loss.

    SCRIPT is a Python script that logs its loss: `hk.log(model, loss=…)`. It is ended after so many steps. By default, means
    are an iteration late, and own gradients go first; `--promise delayed,delay=1,merge=2` and `--promise merged,merge=2` are
    other ways, and so are `--promise uncorrected,uncorrected=1`, with nothing in place of late gradients, and `--promise
    local,local=30`, with ranks that step alone. A plan may have policies that round (`hocket plan --promise lossy`).

    The loss is the one that the synchronous run of the same seed has after four fifths of its steps. Time is steps to it, by
    seconds of a step in these runs; on your network steps take others, which `hocket plan` predicts. The losses after as many
    steps are compared, too.

    Example: hocket check --steps 200 --seeds 3 train.py --batch 32

    Example: hocket check --promise local,local=30 --steps 600 train.py
    """
    extras.need("torch", "hocket check")
    if plan_path is not None and promise is not None:
        raise UsageError("--plan and --promise: a plan has its own schedule\nhint: leave one of them out")
    if promise is not None:
        _check_asked(promise)
    given = None if plan_path is None else _given(plan_path, world)
    own = _argv(script, arguments, as_module=as_module)
    with tempfile.TemporaryDirectory(prefix="hocket-check-") as made:
        directory = Path(made)
        profile = _profiled(own, world, directory)
        plan = given or _imposed(profile, world, promise or DEFAULT)
        checks = admission.judged(plan.schedule, profile.learning)
        plans = _both(plan, profile, directory)
        ways = SYNCHRONOUS, _way(plan)
        by_way: dict[str, list[Curve]] = {way: [] for way in ways}
        retreats = []
        for seed in range(seeds):
            for way, path in zip(ways, plans, strict=True):
                click.echo(f"seed {seed + 1} of {seeds}, {way}", err=True)
                run = directory / f"{way} {seed}".replace(" ", "-")
                _run([*_seeded(own, seed)], world, Settings(plan=str(path), trace=str(run), steps_max=steps))
                by_way[way].append(_curve(run, world, steps))
                if way != SYNCHRONOUS:
                    retreats.append(tuple(each.why for each in trace.read(run).changes()))
    base, other = by_way.values()
    found = Found(
        world=world,
        steps=steps,
        way=ways[1],
        schedule=plan.schedule,
        policies=_policies(plan),
        losses=compared(*_after_as_many(base, other)),
        to_loss=to_loss(base, other),
        to_both=to_loss(base, other, both=True),
        retreats=tuple(retreats),
        guard=admission.said(checks, plan.schedule, profile.learning).strip() if plan.schedule.turns else "",
    )
    publish(_shown(found), found, as_json=as_json, output=output)


def _check_asked(promise: Promise) -> None:
    """Check that a promise says by itself how to train. UsageError: it does not."""
    if not promise.turns:
        raise UsageError(f"--promise {promise}: it allows neither merged nor late gradients")
    amounts = promise.merge or 1, promise.local or 1, (promise.delay or 0) + (promise.uncorrected or 0) + 1
    if max(amounts) == 1:
        raise UsageError(
            f"--promise {promise}: with these amounts it is synchronous training\n"
            "hint: more, such as delayed,delay=1, merged,merge=2 or local,local=30; policies are compared by --plan FILE"
        )


def _argv(script: str, arguments: Sequence[str], *, as_module: bool) -> list[str]:
    argv = argv_of(script, arguments, interpreter="python", as_module=as_module, elsewhere=False)
    if argv[0] != "python":
        raise UsageError(f"{script} is no Python script: seeds are set in the interpreter that runs it")
    return argv[1:]


def _seeded(own: Sequence[str], seed: int) -> list[str]:
    return ["-m", "hocket.torch.seeded", str(seed), *own]


def _given(path: Path, world: int) -> Plan:
    """Read a plan for `world` ranks that trains otherwise than synchronously. UsageError: it is another one."""
    plan = files.read(path, Plan)
    if plan.promise == "exact":
        raise UsageError(
            f"{path}: it gives the results of synchronous training, so there is nothing to compare"
        )
    if plan.world != world:
        raise UsageError(f"{path} is for {plan.world} ranks\nhint: -n {plan.world}")
    return plan


def _imposed(profile: Profile, world: int, promise: Promise) -> Plan:
    return delays.imposed(_default(profile, world), promise, admission.rule_of(profile.learning))


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


def _both(plan: Plan, profile: Profile, directory: Path) -> tuple[Path, Path]:
    """Write the plan of synchronous training and the compared one; return both files. The synchronous one has the other's routes,
    but for policies and codecs."""
    plain = msgspec.structs.replace(plan, schedule=Schedule(overlap=plan.schedule.overlap), safer=())
    if _policies(plan) or not plan.schedule.turns:
        plain = _default(profile, plan.world)
    paths = directory / "synchronous.json", directory / "compared.json"
    for path, each in zip(paths, (plain, plan), strict=True):
        files.write(path, each)
    return paths


def _default(profile: Profile, world: int) -> Plan:
    gradients = sorted(profile.gradients, key=lambda each: each.ready_s)
    return default_plan(gradients, by_hosts(["here"] * world))


def _run(argv: Sequence[str], world: int, settings: Settings) -> None:
    said = io.BytesIO()
    outcome = launch(
        [ProcessSpec(argv=[sys.executable, *argv])] * world, settings=settings, out=said, err=said
    )
    if outcome.failures:
        raise Error(f"the script failed: {outcome.failures[0]}")


def _curve(directory: Path, world: int, steps: int) -> Curve:
    """Return mean losses over the ranks that log any, in order. UsageError: none does, or too few."""
    read = trace.read(directory)
    rows = [read.metrics(rank) for rank in range(world)]
    logged = [
        [float(row["loss"]) for row in own if isinstance(row.get("loss"), (int, float))] for own in rows
    ]
    by_rank = [each for each in logged if each]
    if not by_rank:
        raise UsageError(
            "the script logs no loss, so there is nothing to compare\nhint: hk.log(model, loss=loss)"
        )
    count = min(map(len, by_rank))
    if count < steps // 2:
        raise UsageError(
            f"the script logged {count} losses in at most {steps} steps: too few to compare\n"
            "hint: log one in each step, train for more of them, or ask for fewer --steps"
        )
    taken = [_taken(read, rank) for rank in range(world)]
    return Curve(
        losses=tuple(fmean(each[at] for each in by_rank) for at in range(count)),
        steps=min(each for each, _ in taken),
        step_s=max(each for _, each in taken),
    )


def _taken(read: trace.Trace, rank: int) -> tuple[int, float]:
    """Return a rank's steps, and seconds of one, from the end of one to the end of the next, without the first ones."""
    records = read.records(rank)
    steps = records[records["kind"] == trace.Kind.STEP]
    numbers, ends_ns = (steps[name].astype("int64") for name in ("instance", "end_ns"))
    first = len(steps) // WINDOW
    lasted_s = float(ends_ns[-1] - ends_ns[first]) / 1e9
    return int(numbers[-1]) + 1, lasted_s / float(numbers[-1] - numbers[first])


def _after_as_many(base: Sequence[Curve], other: Sequence[Curve]) -> tuple[list[float], list[float]]:
    """Return final losses of both ways, of each seed after the steps that both took."""
    counts = [min(len(one.losses), len(two.losses)) for one, two in zip(base, other, strict=True)]
    first, second = (
        [settled(each.losses[:count]) for each, count in zip(of, counts, strict=True)] for of in (base, other)
    )
    return first, second


def _shown(found: Found) -> list[Table | str]:
    losses = found.losses
    title = f"{found.world} ranks, {found.steps} steps"
    table = Table(
        "seed",
        title=f"{title}: mean loss of the last tenth, and time to the synchronous loss after four fifths",
    )
    for what in ("loss", "time"):
        for way in (SYNCHRONOUS, found.way):
            table.add_column(f"{what}, {way}")
    for seed, (base, other, reach) in enumerate(
        zip(losses.base, losses.other, found.to_loss.seeds, strict=True), 1
    ):
        times = [
            "" if reach.goal is None else "never" if each is None else seconds(each)
            for each in (reach.base_s, reach.other_s)
        ]
        table.add_row(str(seed), f"{base:.4g}", f"{other:.4g} ({other - base:+.2g})", *times)
    said: list[Table | str] = [table, *verdict(found), _said(found), found.guard]
    said += [f"Seed {seed}: {why}" for seed, all_of in enumerate(found.retreats, 1) for why in all_of]
    if len(set(losses.base)) == 1:
        said.append(
            "All seeds give the same losses: the script's random numbers do not depend on torch's, numpy's or Python's."
        )
    return [each for each in said if each]


def verdict(found: Found) -> Iterator[str]:
    """Say when the way comes to the synchronous run's loss; nothing where a run has diverged, which is said anyway."""
    to_loss, to_both, name = found.to_loss, found.to_both, _named(found)
    if not math.isfinite(found.losses.difference):
        return
    if to_loss.goal is None:
        yield (
            f"The loss of the synchronous runs does not fall by more than its noise in {found.steps} steps, so there is none "
            "to reach, and no time to it: more --steps or another learning rate may show one."
        )
    elif to_loss.ratio is not None:
        some = f" {to_loss.missed} of {len(to_loss.seeds)} seeds do not reach it." if to_loss.missed else ""
        reached = f"training reaches the loss {to_loss.goal:.4g} of the synchronous run in"
        yield f"With {name}, {reached} {_ratio(to_loss.ratio)}{some}"
    else:
        some = f", but for {to_loss.reached} of {len(to_loss.seeds)} seeds" if to_loss.reached else ""
        yield (
            f"With {name}, training does not reach the loss {to_loss.goal:.4g} of the synchronous run in the {found.steps} "
            f"steps given{some}."
        )
        if to_both.goal is not None and to_both.ratio is not None:
            yield f"It comes to {to_both.goal:.4g}, where it ends, in {_ratio(to_both.ratio)}"


def _ratio(of: Ratio) -> str:
    chance = " It may be chance which of both is sooner." if of.low <= 1 <= of.high else ""
    return (
        f"{of.time:.2f} of its time ({of.low:.2f} to {of.high:.2f} by seed): {of.steps:.2f} of its steps, and a step takes "
        f"{of.step_s:.2f} of one's time on this machine.{chance}"
    )


def _said(found: Found) -> str:
    losses = found.losses
    if not math.isfinite(losses.difference):
        which = (SYNCHRONOUS, found.way)[losses.difference > 0]
        return f"A run has diverged ({which}): its loss is no number any more."
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
    return f"After as many steps, the loss is {average} on average; {between}: {verdict}."


def _way(plan: Plan) -> str:
    """Return a short name of how the plan trains."""
    if plan.schedule.outer is not None:
        return "alone"
    return "merged or late" if plan.schedule.turns else "rounded"


def _policies(plan: Plan) -> tuple[str, ...]:
    """Return the policies by which buckets go, which may round or leave out anything."""
    return tuple(sorted({each.route.policy for each in plan.buckets if isinstance(each.route, Traced)}))


def _named(found: Found) -> str:
    """Return words for a way to train."""
    words = [] if found.schedule.outer is None else [f"ranks {named(found.schedule)}"]
    if found.schedule.outer is None and (merged := schedules.merge_of(found.schedule)) > 1:
        words.append(f"updates of up to {merged} iterations")
    if found.schedule.outer is None and (late := found.schedule.delay_max):
        words.append(f"gradients applied up to {late} iteration{'s' if late > 1 else ''} late")
    words += [f"the policy {each}" for each in found.policies]
    return " and ".join(words) or "gradients rounded on links"
