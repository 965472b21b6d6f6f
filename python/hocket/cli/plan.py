"""`hocket plan`: score routes to exchange a model's gradients on a cluster, and write the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import click
import msgspec
from rich.table import Table

from hocket.artefacts import experience, files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.learning import Learning, learning_of
from hocket.artefacts.needs import check_kept, needs_of
from hocket.artefacts.plan import Owned, Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import EXACT, Promise
from hocket.artefacts.tuning import Tuning
from hocket.cli.shared.cluster import tasks_at
from hocket.cli.shared.options import (
    cluster_option,
    json_option,
    output_option,
    profile_option,
    promise_option,
    ray_option,
    tuning_option,
    world_option,
)
from hocket.cli.shared.output import publish
from hocket.cli.shared.refuse import refuse
from hocket.cli.shared.values import One
from hocket.errors import UsageError
from hocket.planning import delays, efficiency, shares, transfer, ways
from hocket.planning import search as planner
from hocket.planning.admission import closest
from hocket.planning.asked import asked_for, is_builder
from hocket.planning.builders import NAMED
from hocket.planning.search import Considered, Option
from hocket.planning.seconds import cost
from hocket.planning.updating import by_owners
from hocket.planning.walk import Rule
from hocket.refusals import HELPERS, MEANS, TURNS, refused
from hocket.settings import Guard, Settings
from hocket.tools.simulation import coded, idle, late, shortlist


@click.command("plan")
@cluster_option(required=True)
@profile_option()
@world_option("Number of ranks.  [default: the profile's, or all slots]")
@promise_option
@tuning_option()
@click.option(
    "--builder",
    metavar="BUILDER",
    help="Take the plan of this builder instead of the fastest: FILE.py[:CLASS], a class of yours; "
    f"{', '.join(NAMED)}; each with settings, such as all-reduce,chunk=64; bound-shares or greedy; or an algorithm for all "
    "buckets, such as ring.",
)
@click.option(
    "--improve",
    is_flag=True,
    help="Search on from the plan of --builder, and take the fastest plan of all.",
)
@click.option(
    "--from",
    "from_path",
    type=click.Path(path_type=Path),
    metavar="PLAN",
    help="Take this plan's choices, made by the same rules for this cluster, instead of the fastest.",
)
@click.option(
    "--experience",
    "experience_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What jobs found out while they trained (a trace's experience.jsonl): their best plans are candidates, too, and "
    "predictions are corrected by what trials have shown.",
)
@click.option(
    "--explain",
    metavar="VARIABLE",
    help="Also show every route for the bucket with this variable, and what the step would take.",
)
@click.option(
    "--update",
    type=click.Choice(["replicas", "owners"]),
    default="replicas",
    show_default=True,
    help="Who updates values: all ranks, or owners alone, which have the optimizer's state of their parts alone.",
)
@click.option(
    "--rate",
    type=click.Choice(get_args(Rule)),
    help="Of promises from `merged` on: what the learning rate is multiplied with for an update of k iterations: k, its root, or "
    "one.  [default: linear for SGD, sqrt for an Adam in the profile]",
)
@click.option(
    "--learning",
    type=One("learning", "an optimizer", learning_of),
    metavar="WORDS",
    help="What the guard of merged and late gradients knows of the training, such as `sgd,rate=0.1,momentum=0.9,curvature=3`; also "
    "loss, floor, drift and noise.  [default: as the profile says]",
)
@click.option(
    "--guard",
    type=click.Choice(get_args(Guard)),
    help="What merged and late gradients must pass: all checks, DeFT's ratio, or nothing.  [default: full, or HOCKET_GUARD]",
)
@click.option(
    "--helpers",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Ranks besides those of -n, on the slots after them, that train nothing and may own parts of buckets.",
)
@ray_option
@output_option("Write the plan here (JSON).")
@json_option
def command(
    *,
    cluster_path: Path,
    profile_path: Path | None,
    world: int | None,
    promise: Promise | None,
    tuning_path: Path | None,
    builder: str | None,
    improve: bool,
    from_path: Path | None,
    experience_path: Path | None,
    explain: str | None,
    update: str,
    rate: Rule | None,
    learning: Learning | None,
    guard: Guard | None,
    helpers: int,
    ray_address: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Choose how gradients travel: order, algorithm, codec and buckets, by predicted step time.

    \b
    Example: hocket plan --cluster cluster.toml --profile profile.json -o plan.json
    """
    cluster = files.read(cluster_path, Cluster)
    given = None if from_path is None else files.read(from_path, Plan)
    experiences = () if experience_path is None else experience.read(experience_path)
    _check_choice({"--builder": builder, "--from": given, "--experience": experience_path})
    own = builder is not None and is_builder(builder)
    if improve and not own:
        raise UsageError("--improve: it goes on from the plan of a builder\nhint: --builder FILE.py[:CLASS]")
    if given is not None or (builder is not None and not improve):
        refuse(
            {"--ray": ray_address},
            ("--ray",),
            "nothing is simulated to choose a plan that is asked for by name",
        )
    if given is not None:
        check_kept(promise, needs_of(given), f"plan `{given.label}`")
    _check_pairs(helpers, update, promise)
    profile = _profile(profile_path, given)
    if learning is not None:
        profile = msgspec.structs.replace(profile, learning=learning)
    slots = sum(host.slots for host in cluster.hosts)
    tuning = None if tuning_path is None else files.read(tuning_path, Tuning)
    considered = planner.considered(
        cluster,
        profile,
        (world or (profile.world if profile_path else slots - helpers)) + helpers,
        promise=promise or EXACT,
        tuning=tuning,
        helpers=helpers,
        builders=[builder] if builder is not None and own else [],
    )
    ranks = len(considered.question.graph.hosts)
    unused: tuple[str, ...] = ()
    if given is not None:
        plan = considered.rescored(transfer.brought(given, None, cluster, ranks, profile))
    elif builder is None or improve:
        plan = _fastest(considered, cluster, profile, ray_address, owners=update == "owners")
    else:
        name = asked_for(builder).title if own else builder
        plan = shortlist.with_sensitivity(considered.explained(considered.of_builder(name)), considered)
    if experiences:
        found = transfer.transferred(experiences, cluster, considered.question, promise or EXACT)
        unused = tuple(f"Not of use here: {why}" for why in found.refused)
        fastest = transfer.with_experience(plan, found, considered.question)
        plan = plan if fastest is plan else considered.rescored(fastest)
    if update == "owners":
        plan = considered.rescored(by_owners(plan))
        unused += _without_owners(plan)
    elif profile_path is not None:
        plan = _scheduled(plan, considered, cluster, rate, guard)
        if given is None and (builder is None or improve):
            plan = idle.shown(coded.chosen(plan, considered, cluster), considered, cluster, tuning)
    options = [] if explain is None else considered.options(plan, explain)
    if output:
        files.write(output, plan)
    written = (f"Plan written to {output}",) if output else ()
    shown = [_table(plan), *_checks(plan), *([] if explain is None else [_options(explain, options)])]
    result = plan if explain is None else {"plan": plan, "options": options}
    elastic = tuple(filter(None, [cost(plan, considered.question.graph.hosts)]))
    unused = (*_shares(considered.best, profile), *elastic, *unused)
    publish((*shown, plan.reason, *unused, *written), result, as_json=as_json)


def _fastest(
    considered: Considered, cluster: Cluster, profile: Profile, ray_address: str | None, *, owners: bool
) -> Plan:
    """Return the plan that is fastest in simulation. `owners`: they are to update, so that no rank joins last."""
    with tasks_at(ray_address) as tasks:
        plan = shortlist.chosen(considered, cluster, profile, tasks)
    return plan if owners else late.chosen(plan, considered, cluster, profile)


def _scheduled(
    plan: Plan, considered: Considered, cluster: Cluster, rate: Rule | None, guard: Guard | None
) -> Plan:
    """Return the plan on the cards that suit it, with the schedule that suits it."""
    question = considered.question
    return delays.scheduled(
        ways.chosen(plan, question.graph, question.profile),
        question.graph,
        question.profile,
        question.promise,
        rate,
        guard=guard or Settings.from_environment().guard,
        simulated_s=shortlist.alone_on(cluster, len(question.graph.hosts), question.profile),
    )


def _shares(plan: Plan, profile: Profile) -> tuple[str, ...]:
    """Return a sentence on shares of batches if the profile's ranks are unequally fast. `plan`: of ranks that are equally fast."""
    found = shares.of_profile(profile)
    return () if found is None else (found.said(max(0.0, plan.predicted_step_s - profile.step_s)),)


def _check_choice(options: Mapping[str, object]) -> None:
    """Raise UsageError if several options choose a plan."""
    named = [option for option, value in options.items() if value is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)}: each says which plan to take\nhint: leave all but one out")


def _without_owners(plan: Plan) -> tuple[str, ...]:
    """Return a sentence if no owner updates anything, although that was asked for."""
    owned = (bucket.route for bucket in plan.buckets if isinstance(bucket.route, Owned))
    if any(route.update == "owners" for route in owned):
        return ()
    return ("No owner updates anything: no bucket is reduced among ranks that train alone.",)


def _check_pairs(helpers: int, update: str, promise: Promise | None) -> None:
    turns = promise is not None and promise.turns
    if helpers and turns:
        raise refused(HELPERS, TURNS, where=f"--helpers with the promise `{promise}`")
    if update == "owners" and turns:
        raise refused(MEANS, TURNS, where=f"--update owners with the promise `{promise}`")


def _profile(path: Path | None, plan: Plan | None) -> Profile:
    """Return the given profile; else one of the plan's own variables, else a neutral one."""
    if path is not None:
        return files.read(path, Profile)
    return planner.neutral_profile() if plan is None else transfer.model_of(plan)


def _table(plan: Plan) -> Table:
    candidates = plan.evidence.candidates
    simulated = any(each.simulated_step_s is not None for each in candidates)
    columns = ["candidate", "predicted step", *(["simulated"] if simulated else []), ""]
    table = Table(*columns, title=f"{plan.world} ranks, fastest first")
    for each in sorted(candidates, key=lambda each: each.predicted_step_s):
        times = [_milliseconds(each.predicted_step_s)]
        if simulated:
            times.append("" if each.simulated_step_s is None else _milliseconds(each.simulated_step_s))
        table.add_row(each.label, *times, _chosen(plan) if each.label == plan.label else "")
    return table


def _chosen(plan: Plan) -> str:
    if not plan.schedule.turns:
        return "chosen"
    efficient = plan.evidence.efficiency
    return f"chosen, {efficiency.UNKNOWN if efficient is None else f'efficiency {efficient:.2f}'}"


def _checks(plan: Plan) -> list[Table]:
    """Return tables of the guard's findings about the schedule, and about those that it refused."""
    evidence = plan.evidence
    found = [
        *([(plan.label, evidence.checks)] if evidence.checks else ()),
        *((each.label, each.checks) for each in evidence.refused),
    ]
    if not found:
        return []
    near = closest(evidence.checks)
    table = Table("schedule", "check", "value", "limit", "", title="The guard of merged and late gradients")
    for at, (label, checks) in enumerate(found):
        for check in checks:
            value = "" if check.value is None else f"{check.value:.4g}"
            words = {True: "kept", False: "exceeded", None: "unknown"}[check.passed]
            mark = ", closest to its limit" if at == 0 and check is near else ""
            table.add_row(label, check.name, value, f"{check.limit:.4g}", words + mark)
    return [table]


def _options(variable: str, options: Sequence[Option]) -> Table:
    several = len({each.bucket for each in options}) > 1
    title = f"{'buckets' if several else 'the bucket'} with {variable}, other buckets unchanged"
    columns = ["route", "bucket alone", "step", ""]
    table = Table(*(["bucket", *columns] if several else columns), title=title)
    for each in options:
        mark = "chosen" if each.chosen else ""
        cells = each.label, _milliseconds(each.alone_s), _milliseconds(each.step_s), mark
        table.add_row(*((str(each.bucket), *cells) if several else cells))
    return table


def _milliseconds(time_s: float) -> str:
    return f"{time_s * 1e3:.1f} ms"
