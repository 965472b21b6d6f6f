"""`transfer`: number of trials of a search on another cluster, or with another model, with and without another job's experience.

The worlds are those of `search`: links differ from the cluster file by up to 30 %, and measurements by 3 %, in virtual time. On the
same cluster, the links of both jobs differ in the same way: it is the same network.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benches.row import Row
from benches.strategies.cases import CLUSTERS, MODELS, builders
from benches.strategies.noisy import NEAR, NOISE, World, changed
from hocket.artefacts.belief import Belief
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.experience import Experience, Job, Trial
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import EXACT
from hocket.planning.question import question_of
from hocket.planning.search import considered
from hocket.planning.transfer import transferred, with_experience
from hocket.planning.trials import Trials
from hocket.tools.report.quantity import TIMES

Place = tuple[str, str]
"""A cluster and a model."""

PAIRS: tuple[tuple[Place, Place], ...] = (
    (("racks", "blocks"), ("three racks", "blocks")),
    (("three racks", "uneven"), ("racks", "uneven")),
    (("slow host", "uneven"), ("star", "uneven")),
    (("star", "even"), ("slow host", "even")),
    (("three racks", "small"), ("racks", "small")),
    (("racks", "even"), ("racks", "uneven")),
    (("racks", "uneven"), ("racks", "blocks")),
    (("three racks", "blocks"), ("three racks", "even")),
    (("slow host", "even"), ("slow host", "blocks")),
    (("star", "small"), ("star", "uneven")),
)
LEARNED, TRIALS = 20, 40
"""Trials of the earlier job, and limit on those of a search."""
SEED = 7
NAME = "transfer"


@dataclass
class Searched:
    """True step of the plan of each trial, in order; and the measurements."""

    steps_s: list[float]
    experience: Experience

    def until(self, best_s: float) -> int:
        """Trials until one was within 2 % of the best, or one more than all trials."""
        near = (at for at, step_s in enumerate(self.steps_s) if step_s <= NEAR * best_s)
        return next(near, len(self.steps_s))


def measured() -> Iterator[Row]:
    with_it = without = refused = 0
    worst = 0.0
    for before, after in PAIRS:
        told = _search(before, LEARNED).experience
        cluster, profile = CLUSTERS[after[0]], MODELS[after[1]]
        found = considered(cluster, profile, len(cluster.hosts))
        known = transferred([told], cluster, found.question, EXACT)
        refused += len(known.refused)
        alone = _search(after, TRIALS)
        helped = _search(after, TRIALS, first=known.plans, prior=known.belief)
        best_s = min(*alone.steps_s, *helped.steps_s)
        without += alone.until(best_s)
        with_it += helped.until(best_s)
        world = _world(after)
        built_s = min(world.step_s(plan) for plan in builders(cluster, profile, found).values())
        worst = max(worst, world.step_s(with_experience(found.best, known, found.question)) / built_s)
    pairs = f"{len(PAIRS)} pairs"
    yield Row(
        name=NAME,
        what=f"{pairs}: trials to within 2 % of the best with experience over those without",
        value=with_it / max(1, without),
        target=1 / 3,
        unit=TIMES,
    )
    yield Row(name=NAME, what=f"{pairs}: trials without experience", value=without)
    yield Row(
        name=NAME,
        what=f"{pairs}: the first plan with experience over the best builder's, worst case",
        value=worst,
        target=1.0,
        unit=TIMES,
    )
    yield Row(name=NAME, what=f"{pairs}: plans refused, each with its rule", value=refused)


def _search(
    where: Place, trials: int, *, first: Sequence[Plan] = (), prior: Belief | None = None
) -> Searched:
    """Search from the planner's plan. `first`: plans that are tried before all others."""
    cluster, profile = CLUSTERS[where[0]], MODELS[where[1]]
    world = _world(where)
    question = question_of(cluster, profile, len(cluster.hosts), EXACT, None)
    incumbent = considered(cluster, profile, len(cluster.hosts)).best
    search = Trials(question, incumbent, SEED, prior, trials_max=trials)
    waiting, steps_s, found = list(first), list[float](), list[Trial]()
    while len(steps_s) <= trials:
        # The incumbent trains anyway, before anything is tried.
        plan = waiting.pop(0) if waiting and steps_s else search.next()
        if plan is None:
            break
        step_s = world.measured_s(plan)
        search.observe(plan, step_s, NOISE * step_s)
        steps_s.append(world.step_s(plan))
        found.append(Trial(plan=plan, measured_s=step_s, error_s=NOISE * step_s))
    job = Job(cluster=cluster, profile=profile, promise="exact")
    return Searched(steps_s, Experience(job=job, trials=tuple(found)))


def _world(where: Place) -> World:
    cluster: Cluster = changed(CLUSTERS[where[0]], SEED)
    profile: Profile = MODELS[where[1]]
    return World(cluster, profile, random.Random(SEED))  # noqa: S311  # of noise
