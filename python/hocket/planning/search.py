"""The planner: a search over whole plans, by the cost model of `crates/plan`.

The search considers three kinds of routes: algorithms whose predictions were compared with runs (`proposed` in the list of
algorithms), algorithms that a tuning of a similar network measured, and owners of parts if hosts are unequal. If the promise allows
it, each is also tried with a codec on slow links, or between all hosts if no link is slow. A path between two hosts is slow if its
rate is below half that of the fastest path (`Network.slow_pairs`). Buckets of one plan may take different routes in different
orders: the given one, rack by rack, fast hosts first, or one found by a search over measured latencies. A large variable is cut
between buckets if that saves more than a fiftieth of the step.

The search is deterministic: it is seeded, and its budget counts evaluations. Among predictions that agree to a microsecond, the
first candidate wins; candidates are sorted simplest first.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from hocket import _native
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Candidate, Evidence, Owned, Plan
from hocket.artefacts.profile import Gradient, Profile
from hocket.artefacts.promise import EXACT, Promise
from hocket.artefacts.tuning import Tuning
from hocket.errors import UsageError
from hocket.planning import reason
from hocket.planning.asked import READY_MADE, Chosen, asked_for
from hocket.planning.builders import BUILDERS
from hocket.planning.built import built
from hocket.planning.question import Alternative, Question, Solved, builder_of, question_of

EQUAL_S = 1e-6
"""Difference below which two predictions are equal."""

WITHOUT_OWNERS = "no owners"
"""Name and label of the fastest plan without owners."""

EVALUATIONS = 20_000
"""Budget beyond the plans that a search starts from; the same again if cutting variables could pay."""


def plan(
    cluster: Cluster,
    profile: Profile | None,
    world: int,
    *,
    promise: Promise = EXACT,
    tuning: Tuning | None = None,
    builders: Sequence[Chosen] = (),
) -> Plan:
    """The plan with the smallest predicted step time, with its rules, its bound and the digests of its inputs. Its candidates are
    the plan itself, all plans with one route for all buckets, and the slower plans of builders.

    Args:
        cluster: the network.
        profile: the model; None: a neutral one, good only for comparing networks.
        world: number of ranks.
        promise: with `rounded`, gradients are also rounded on slow links, or between all hosts where no link is slow, if that
            is faster.
        tuning: measured times, which correct the cost model if they come from a similar network.
        builders: of the user's, whose plans take part: the search begins with them, too. Each a builder, its class, or its name
            with settings, such as `mine.py:Chunked,chunk=64`.

    Raises:
        UsageError: the world does not fit the cluster.
        BuilderError: one of the builders makes no plan that may run.
        ArtefactError: the cluster contradicts itself.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab")
    >>> plan(Cluster(hosts=hosts), None, 2).buckets[0].order
    (0, 1)
    """
    found = considered(cluster, profile, world, promise=promise, tuning=tuning, builders=builders)
    return found.explained(found.best)


def built_by(
    builder: Chosen,
    cluster: Cluster,
    profile: Profile | None,
    world: int,
    *,
    promise: Promise = EXACT,
    tuning: Tuning | None = None,
) -> Plan:
    """The plan of a builder, with the setting that is predicted to be the fastest; its candidates are all other plans that the
    planner would consider. Arguments and exceptions as for `plan`.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab")
    >>> built_by("all-reduce,chunk=8", Cluster(hosts=hosts), None, 2).label
    'all-reduce,chunk=8'
    """
    found = considered(cluster, profile, world, promise=promise, tuning=tuning, builders=[builder])
    return found.explained(found.of_builder(asked_for(builder).title))


def considered(
    cluster: Cluster,
    profile: Profile | None,
    world: int,
    *,
    promise: Promise = EXACT,
    tuning: Tuning | None = None,
    helpers: int = 0,
    builders: Sequence[Chosen] = (),
) -> Considered:
    """All results of the search. Arguments and exceptions as for `plan`; `helpers`: number of ranks, the last ones, that do not
    train and may own."""
    question = question_of(
        cluster,
        profile or neutral_profile(),
        world,
        promise,
        tuning,
        helpers=helpers,
        builders=map(asked_for, builders),
    )
    given = built(question, question.builders)
    solved = question.solved(EVALUATIONS, given=[plan for _, plan in given])
    found = solved.plan()
    asked = {title for title, _ in given}
    ruled = [*given, *built(question, [each for each in READY_MADE if each.title not in asked])]
    # The search begins with plans like some builders'; of those, the builders' own are listed.
    listed = (
        *ruled,
        *((name, plan) for name, plan in solved.built() if name not in BUILDERS),
        *_without_owners(question, found),
    )
    made_from = {"cluster": cluster, "profile": profile, "tuning": tuning}
    return Considered(
        question=question,
        solved=solved,
        uniform=tuple(solved.uniform()),
        built=listed,
        best=_better(found, [plan for _, plan in ruled if question.admits(plan)]),
        digests={kind: digest(each) for kind, each in made_from.items() if each is not None},
        by=reason.by(tuning, question.correction),
    )


def _without_owners(question: Question, found: Plan) -> Iterator[tuple[str, Plan]]:
    """The fastest plan without owners, if the fastest one has some: only a simulation predicts owners' queues."""
    if not any(isinstance(bucket.route, Owned) for bucket in found.buckets):
        return
    admitted = question.admitted - {"owned"}
    plan = dataclasses.replace(question, admitted=admitted).solved(EVALUATIONS).plan()
    yield WITHOUT_OWNERS, msgspec.structs.replace(plan, label=f"{plan.label}, {WITHOUT_OWNERS}")


def candidates(
    cluster: Cluster, profile: Profile | None, world: int, *, promise: Promise = EXACT
) -> list[Plan]:
    """Every plan with one route for all buckets, with its prediction, simplest first."""
    return question_of(cluster, profile or neutral_profile(), world, promise, None).solved(0).uniform()


def neutral_profile(gradients: Iterable[Gradient] = ()) -> Profile:
    """A profile in place of a measured one: no compute, all gradients ready at once.

    Without `gradients` there are 16 gradients of a million f32 elements each.
    """
    named = tuple(gradients) or tuple(
        Gradient(name=f"neutral.{i}", shape=(1_000_000,), dtype="f32", ready_s=0.0, needed_s=0.0)
        for i in range(16)
    )
    return Profile(
        model="neutral",
        world=1,
        steps=0,
        forward_s=0.0,
        backward_s=0.0,
        optimizer_s=0.0,
        step_s=0.0,
        gradients=named,
    )


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """A route for a bucket: its predicted time with the network to itself, and that of the whole step. `bucket`: its index."""

    bucket: int
    label: str
    alone_s: float
    step_s: float
    chosen: bool


@dataclass(frozen=True)
class Considered:
    """Result of a search.

    `uniform`: plans with one route for all buckets, simplest first. `built`: the names of builders and their plans.
    `by`: a sentence on the tuning.
    """

    question: Question
    solved: Solved
    uniform: tuple[Plan, ...]
    built: tuple[tuple[str, Plan], ...]
    best: Plan
    digests: dict[str, str]
    by: str

    @property
    def fastest(self) -> list[Plan]:
        """All different plans by predicted time; ties to a microsecond in the order of discovery, the best first."""
        plans = (self.best, *self.uniform, *(plan for _, plan in self.built))
        return sorted(
            {each.buckets: each for each in reversed(plans)}.values(),
            key=lambda each: (round(each.predicted_step_s, 6), each is not self.best),
        )

    def of_builder(self, name: str) -> Plan:
        """The fastest plan of the named builder, or of the named algorithm for all buckets. UsageError if there is none."""
        known = [*self.built, *((builder_of(plan), plan) for plan in self.uniform)]
        found = [plan for each, plan in known if name in (each, plan.label)]
        if not found:
            names = ", ".join(dict.fromkeys(each for each, _ in known))
            one = (
                "\nhint: a job of one rank sends nothing; -n N plans for more"
                if len(self.question.graph.hosts) < 2
                else ""
            )
            raise UsageError(f"builder `{name}` makes no plan for this job: known are {names}{one}")
        return min(found, key=lambda plan: round(plan.predicted_step_s, 6))

    def explained(self, chosen: Plan) -> Plan:
        """Return one of the plans with its reason and its evidence."""
        # A plan that was asked for by name may be slower than others: all are listed, to compare it with.
        fastest = chosen.predicted_step_s <= self.best.predicted_step_s + EQUAL_S
        others = [
            plan for _, plan in self.built if not fastest or plan.predicted_step_s > chosen.predicted_step_s
        ]
        listed = [*self.uniform, *others, *(() if fastest else (self.best,))]
        listed = list({each.label: each for each in reversed(listed)}.values())[::-1]
        if all(each.label != chosen.label for each in listed):
            listed.append(chosen)
        # A plan that promises less than was asked for may send fewer bytes.
        least_s = self.solved.solution.least_s
        bound_s = least_s if least_s <= chosen.predicted_step_s + EQUAL_S else None
        scored = self.question.predicted
        ends = [(each, scored(each)) for each in (self.uniform[0], max(listed, key=_predicted_s))]
        return msgspec.structs.replace(
            chosen,
            reason=reason.links(chosen, scored(chosen), *ends)
            + reason.gap(chosen.predicted_step_s, bound_s)
            + self.by,
            evidence=Evidence(
                predicted_step_s=chosen.predicted_step_s,
                bound_step_s=bound_s,
                evaluations=self.solved.solution.evaluations,
                digests=self.digests,
                candidates=tuple(
                    Candidate(label=each.label, predicted_step_s=each.predicted_step_s) for each in listed
                ),
            ),
        )

    def rescored(self, changed: Plan) -> Plan:
        """Return a new plan with its own prediction and reason."""
        step_s = self.question.predicted(changed).step_s
        evidence = msgspec.structs.replace(changed.evidence, predicted_step_s=step_s)
        return self.explained(msgspec.structs.replace(changed, evidence=evidence))

    def options(self, plan: Plan, variable: str) -> list[Option]:
        """Predicted cost of each route for the buckets with a variable, with the rest of the plan unchanged: bucket by bucket, the
        fastest first.

        UsageError if the plan has no such variable.
        """
        found = [
            option
            for at, bucket in enumerate(plan.buckets)
            if any(part.variable == variable for part in bucket.parts)
            for option in self._options(plan, at)
        ]
        if not found:
            raise UsageError(
                f"the plan has no variable `{variable}`\nhint: {', '.join(_near(plan, variable))}"
            )
        return found

    def _options(self, plan: Plan, at: int) -> list[Option]:
        bucket = plan.buckets[at]
        alternatives = self.solved.alternatives(bucket)
        if all(each.bucket != bucket for each in alternatives):
            alternatives.append(Alternative(plan.label, bucket))
        found = []
        for each in alternatives:
            changed = (*plan.buckets[:at], each.bucket, *plan.buckets[at + 1 :])
            found.append(
                Option(
                    bucket=at,
                    label=each.label,
                    alone_s=self.question.alone_s(each.bucket),
                    step_s=self.question.predicted(msgspec.structs.replace(plan, buckets=changed)).step_s,
                    chosen=each.bucket == bucket,
                )
            )
        return sorted(found, key=lambda each: (round(each.step_s, 6), not each.chosen, each.alone_s))


def _better(found: Plan, others: Sequence[Plan]) -> Plan:
    """The fastest of the other plans if it is faster than the search's; a plan that cuts variables must gain as much as in a
    search."""
    whole = [each for each in others if not _cuts(each)]
    for each, least_s in (
        (min(whole, key=_predicted_s, default=found), found.predicted_step_s - EQUAL_S),
        (min(others, key=_predicted_s, default=found), _native.SPLIT_WORTH * found.predicted_step_s),
    ):
        if each.predicted_step_s < least_s:
            return each
    return found


def _cuts(plan: Plan) -> bool:
    names = [part.variable for bucket in plan.buckets for part in bucket.parts]
    return len(set(names)) < len(names)


def _predicted_s(plan: Plan) -> float:
    return plan.predicted_step_s


def _near(plan: Plan, variable: str) -> list[str]:
    names = [part.variable for bucket in plan.buckets for part in bucket.parts]
    return difflib.get_close_matches(variable, names, n=5, cutoff=0.3) or names[:5]


def digest(artefact: Cluster | Profile | Tuning) -> str:
    """Digest of the artefact's file."""
    return hashlib.sha256(files.encode(artefact)).hexdigest()[:16]
