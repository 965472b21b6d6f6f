"""Plans of builders, ready-made ones and users': made, checked, and each with the setting that is predicted to be the fastest.

A mistake is reported with the user's line: what a bucket lacks as it is made, what a plan lacks when it is whole. A user's builder
is asked twice, since it must make the same plan each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import islice

import msgspec

from hocket.artefacts.plan import Bucket, Evidence, Gathered, Owned, Plan, Traced
from hocket.artefacts.plan_check import findings
from hocket.errors import BuilderError, Error
from hocket.planning import rows
from hocket.planning.asked import READY_MADE, Asked
from hocket.planning.builder import Builder
from hocket.planning.cost import Steps, as_modelled
from hocket.planning.job import Job
from hocket.planning.making import NAMED_MAX, Line
from hocket.planning.question import Question
from hocket.planning.traced import traffic
from hocket.planning.within import within
from hocket.settings import Settings
from hocket.user_classes import line_of

BUCKETS_MAX = 1024
"""Limit on buckets in a plan; larger plans are not made."""
OWNED_RANKS_MAX = 256
"""Limit on ranks for plans with owners, the same as in the search."""


class TooLargeError(BuilderError):
    """A plan of a builder has more buckets, or more ranks with owners, than plans may have."""

    @classmethod
    def of(cls, error: BuilderError) -> TooLargeError:
        """Make it of an error with the same words."""
        return cls(str(error), file=error.file, line=error.line)


def built(question: Question, asked: Sequence[Asked] = READY_MADE) -> list[tuple[str, Plan]]:
    """Titles of builders, and the fastest plan of each with its prediction; empty for one rank.

    A ready-made builder that makes no plan of a permitted size is left out. BuilderError: a user's builder makes none.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> from hocket.artefacts.promise import EXACT
    >>> from hocket.planning.builders import BUILDERS
    >>> from hocket.planning.question import question_of
    >>> from hocket.planning.search import neutral_profile
    >>> two = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab"))
    >>> [name for name, _ in built(question_of(two, neutral_profile(), 2, EXACT, None))] == list(BUILDERS)
    True
    """
    if len(question.graph.hosts) < 2:
        return []
    made = [(at, plan) for at, each in enumerate(asked) for plan in _plans(question, each)]
    factor = as_modelled if question.correction is None else question.correction.factor
    steps_s = Steps([plan for _, plan in made], question.profile, factor).on(question.graph)
    found: dict[int, Plan] = {}
    for (at, plan), step_s in zip(made, steps_s, strict=True):
        if at not in found or step_s < found[at].predicted_step_s:
            evidence = Evidence(predicted_step_s=step_s)
            found[at] = msgspec.structs.replace(plan, evidence=evidence)
    return [(asked[at].title, plan) for at, plan in found.items()]


def _plans(question: Question, asked: Asked) -> list[Plan]:
    """Different plans of a builder, with each of its settings."""
    plans: dict[tuple[Bucket, ...], Plan] = {}
    too_large: TooLargeError | None = None
    for builder in asked.variants():
        try:
            plan = plan_by(question, asked, builder)
        except TooLargeError as error:
            too_large = too_large or error
        else:
            plans.setdefault(plan.buckets, plan)
    if not plans and too_large is not None and (asked.of_user or asked.given):
        raise too_large
    return list(plans.values())


def plan_by(question: Question, asked: Asked, builder: Builder) -> Plan:
    """The plan of a builder with one setting, without a prediction. BuilderError: it makes none that may run."""
    plan = _once(question, asked, builder)
    if not asked.of_user:
        return plan
    again = _once(question, asked, builder)
    differ = (
        at for at, (one, other) in enumerate(zip(plan.buckets, again.buckets, strict=False)) if one != other
    )
    at = next(differ, None)
    if at is not None or len(plan.buckets) != len(again.buckets):
        counts = f"{len(plan.buckets)} buckets, then {len(again.buckets)}"
        what = counts if at is None else f"bucket {at}, with {_names(plan.buckets[at].variables)}, differs"
        raise asked.refusal(
            f"asked twice, it makes two plans: {what}",
            "draw by `random.Random(1)`, go through lists instead of sets, and keep nothing from call to call",
            _defined(builder),
        )
    return plan


def _once(question: Question, asked: Asked, builder: Builder) -> Plan:
    job = Job(question)
    if asked.of_user:
        limit_s = Settings.from_environment().builder_timeout_s
        buckets = within(limit_s, lambda: _buckets(builder, job, asked), asked)
    else:
        buckets = _buckets(builder, job, asked)
    _check_whole(buckets, job, asked, builder)
    plan = job.plan(list(_in_order(buckets, job)), asked.label(builder))
    for found in findings(plan, job.variables):
        raise asked.refusal(found.message, "docs/strategies.md shows builders that make sound plans")
    return plan


def _buckets(builder: Builder, job: Job, asked: Asked) -> list[Bucket]:
    """Run a builder. BuilderError, with the line: it fails, or returns something else."""
    hint = "yield buckets that `job.bucket` makes, or return a list of them"
    if type(builder).build is Builder.build:
        raise asked.refusal("it has no `build`", "def build(self, job): …")
    try:
        given = builder.build(job)
        if not isinstance(given, Iterable):
            raise asked.refusal(f"`build` returns {given!r:.60}", hint, _defined(builder))
        found = list(islice(given, BUCKETS_MAX + 1))
    except BuilderError:
        raise
    except Exception as error:
        at = line_of(error, asked.file or "") if asked.of_user else None
        if isinstance(error, Error):
            what, _, advice = str(error).partition("\nhint: ")
            raise asked.refusal(what, advice or "see docs/strategies.md", at) from error
        raise asked.refusal(f"it raised {type(error).__name__}: {error}", _advice(error), at) from error
    for each in found:
        if not isinstance(each, Bucket) or job.line(each) is None:
            raise asked.refusal(f"it yields {each!r:.60}, no bucket of this job", hint, _defined(builder))
    if not found and job.dense:
        raise asked.refusal("it yields no bucket", hint, _defined(builder))
    return found


def _advice(error: Exception) -> str:
    """Return the names that an object has instead of one that it lacks, else how to see more."""
    near: list[str] = []
    if isinstance(error, AttributeError):
        near = get_close_matches(error.name or "", [each for each in dir(error.obj) if each[0] != "_"])
    return f"it has {', '.join(near)}" if near else "HOCKET_DEBUG=1 shows the traceback"


def _check_whole(buckets: Sequence[Bucket], job: Job, asked: Asked, builder: Builder) -> None:
    """Raise BuilderError for what is wrong with these buckets together."""
    if len(buckets) > BUCKETS_MAX:
        raise TooLargeError.of(
            asked.refusal(
                f"it makes more than built.BUCKETS_MAX = {BUCKETS_MAX} buckets",
                "several variables to a bucket, such as by `job.groups`",
                job.line(buckets[-1]),
            )
        )
    owned = next((each for each in buckets if isinstance(each.route, Owned)), None)
    if owned is not None and job.world > OWNED_RANKS_MAX:
        raise TooLargeError.of(
            asked.refusal(
                f"owners among {job.world} ranks, more than built.OWNED_RANKS_MAX = {OWNED_RANKS_MAX}",
                "an all-reduce",
                job.line(owned),
            )
        )
    sparse = {each.name for each in job.sparse}
    for bucket in buckets:
        wrong = sparse.intersection(bucket.variables)
        if wrong and not isinstance(bucket.route, Gathered):
            raise asked.refusal(
                f"`{min(wrong)}` is sparse: its optimizer takes no dense gradient",
                "route it by `job.rows(variable)`, or leave it out: then it travels as rows",
                job.line(bucket),
            )
        if isinstance(bucket.route, Traced):
            try:
                traffic(bucket, job.topology)
            except Error as error:
                raise asked.refusal(
                    f"policy `{bucket.route.policy}` of {_names(bucket.variables)}: {error.summary}",
                    "`hocket verify` shows what the policy makes of a bucket",
                    job.line(bucket),
                ) from error
    _check_covered(buckets, job, asked, builder)


def _check_covered(buckets: Sequence[Bucket], job: Job, asked: Asked, builder: Builder) -> None:
    """Raise BuilderError unless each element is in one bucket; sparse variables may be in none."""
    held: dict[str, list[tuple[int, int, Line | None]]] = {each.name: [] for each in job.variables}
    for bucket in buckets:
        for part in bucket.parts:
            held[part.variable].append((part.start, part.stop or 0, job.line(bucket)))
    forgotten = [each.name for each in job.dense if not held[each.name]]
    if forgotten:
        raise asked.refusal(
            f"it forgets {_names(forgotten)}",
            "every variable of `job.dense` is in a bucket",
            _defined(builder),
        )
    for variable in job.variables:
        at, before = 0, None
        for start, stop, line in sorted(held[variable.name], key=lambda each: each[:2]):
            if start > at:
                break
            if start < at or (before is not None and stop == start):
                other = "" if before is None else f", also in that of line {before[1]}"
                raise asked.refusal(
                    f"`{variable.name}`: elements {start} to {min(at, stop)} are in this bucket{other}",
                    "each element travels once",
                    line,
                )
            at, before = stop, line
        else:
            start = variable.elements
        if at < start and held[variable.name]:
            raise asked.refusal(
                f"`{variable.name}`: elements {at} to {start} are in no bucket",
                f"its parts have {variable.elements} elements together, from 0 on",
                before or held[variable.name][0][2],
            )


def _in_order(buckets: Sequence[Bucket], job: Job) -> Iterator[Bucket]:
    """Number buckets by their priorities, then by readiness; then sparse variables that are in none, as rows."""
    order = {each.name: at for at, each in enumerate(job.variables)}
    ready_s = {each.name: each.ready_s for each in job.variables}

    def urgency(bucket: Bucket) -> tuple[int, float, int]:
        names = bucket.variables
        return bucket.priority, max(ready_s[each] for each in names), -max(order[each] for each in names)

    ordered = sorted(buckets, key=urgency)
    for priority, bucket in enumerate(ordered):
        yield msgspec.structs.replace(bucket, priority=priority)
    named = {name for bucket in buckets for name in bucket.variables}
    left = [each for each in job.sparse if each.name not in named]
    for at, variable in enumerate(left, len(ordered)):
        yield rows.rows_bucket(variable, range(job.workers), at)


def _defined(builder: Builder) -> Line:
    """File and line of a builder's `build`."""
    code = type(builder).build.__code__
    return code.co_filename, code.co_firstlineno


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(f"`{each}`" for each in names[:NAMED_MAX]) + more
