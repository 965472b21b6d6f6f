"""The cost model corrected by trials: how slow links really are, and other errors of predictions.

    log(measured step) = log(predicted step, with slowed links) + Σ weight · feature + noise

A link's slowness is the sum of terms for its kind, for both its directions, and for itself. The step is linearised in these and in
the weights of features (`features.py`), over the uncertainty of each. The resulting ridge regression gives new means, at which the
step is linearised again (iterated posterior linearisation, García-Fernández et al. 2015). Slowness has Student's distribution, by
ridge weights found on the way (West 1984). The logistic loss of pairs of trials is added (RankNet, Burges et al. 2005), as
decisions follow from the order of plans. Uncertainty is the regression's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hocket.artefacts.belief import Belief, Estimate
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Plan
from hocket.planning.cost import Steps, as_modelled
from hocket.planning.features import NAMES, features
from hocket.planning.question import Question

GROUPS_MAX = 40
"""Limit on groups of links: beyond it, single links are left out, and then those of one host or rack."""
KIND_SD, BOTH_SD, LINK_SD = 0.2, 0.2, 0.1
"""Standard deviations of the logarithm of slowness: of a kind of links, of both directions, of one direction; together 0.3."""
FREEDOM = 3.0
"""Degrees of freedom of Student's distribution, of slowness: most links are as fast as the file says, a few differ widely."""
WEIGHT_SD: dict[str, float] = {"waiting": 0.1}
"""Standard deviations of features' weights, FEATURE_SD if absent. Slow links already explain errors of all waiting alike."""
FEATURE_SD = 0.3
CHANGED_SD = 0.1
"""Standard deviation of links and weights from those that another job has found."""
MODEL_SD = 0.02
"""Standard deviation of the logarithm's error with known links and weights."""
SLOWNESS_MAX = 5.0
"""Limit on the logarithm of slowness (a factor of 150): intermediate estimates may be anything."""
LINEARISATIONS = 5
STEP_PARTS = (1.0, 0.5, 0.2)
"""Fractions of the step to the linear model's optimum: beyond a bend the linear model is wrong."""
NEWTON_STEPS = 4
NARROWEST_SD, WIDEST_SD = 0.02, 0.3
"""Limits on each parameter's range in a linearisation: steps have bends where another link becomes the busiest."""
SLOWER = (-2.3, -1.2, -0.5, 0.5, 1.2, 2.3)
"""Logarithms of slowness, relative to other links, that one group has where the search for an explanation begins."""
EXPLANATIONS = 5
UNLIKELY = 1e-3
"""Likelihood, relative to the likeliest, below which an explanation is left out."""
ALIKE = 0.05
"""Difference in parameters below which two explanations are one."""
HOPE = 0.25
"""Likelihood, relative to the likeliest explanation, that unsaturated links are as fast as others of their kind."""
DOUBT = 2.0
"""Loss in log-likelihood of the trials that this hope may cost."""


@dataclass(frozen=True)
class Trial:
    """A plan, and the median and spread of its measured steps."""

    plan: Plan
    step_s: float
    spread_s: float = 0.0


class Group(NamedTuple):
    """Links with a common term of slowness, and the term's prior standard deviation."""

    name: str
    links: tuple[int, ...]
    sd: float


Groups = tuple[Group, ...]


class Component(NamedTuple):
    """An explanation: its likelihood, and means and covariance of the groups' slowness, then of the weights."""

    share: float
    mean: Any
    covariance: Any


@dataclass(frozen=True)
class Learned:
    """Explanations of the trials, the likeliest first."""

    question: Question
    groups: Groups
    components: tuple[Component, ...]

    @property
    def belief(self) -> Belief:
        """The likeliest explanation, with names."""
        _, means, covariance = self.components[0]
        found: list[Estimate] = [
            (float(mean), float(np.sqrt(variance)))
            for mean, variance in zip(means, np.diag(covariance), strict=True)
        ]
        links = {group.name: found[at] for at, group in enumerate(self.groups)}
        weights = dict(zip(NAMES, found[len(self.groups) :], strict=True))
        return Belief(links=links, weights=weights)

    def draws(self, count: int, seed: int) -> Any:
        """Samples of the parameters, one a row; the means of explanations come first."""
        random = np.random.default_rng(seed)
        shares = np.array([each.share for each in self.components])
        each = random.choice(len(shares), size=count, p=shares / shares.sum())
        each[: len(shares)] = np.arange(len(shares))[:count]
        normal = random.standard_normal((count, len(self.components[0].mean)))
        normal[: len(shares)] = 0.0
        factors = [np.linalg.cholesky(component.covariance) for component in self.components]
        return np.array(
            [self.components[at].mean + factors[at] @ own for at, own in zip(each, normal, strict=True)]
        )

    def steps_s(self, plans: Sequence[Plan], draws: Any) -> Any:
        """Seconds of a step of each plan (columns) with each draw (rows)."""
        return np.exp(_Model.of(self.question, self.groups, plans).logs(draws))

    def as_drawn(self, draw: Any) -> Question:
        """The question on a network slowed by a draw."""
        return replace(self.question, graph=_slowed(self.question.graph, self.groups, draw))


def learned(question: Question, trials: Sequence[Trial], prior: Belief | None = None) -> Learned:
    """Fit explanations to trials, given `prior`, another job's belief.

    Raises UsageError for a plan of another model.
    """
    groups = _groups(question.graph)
    mean, sd = _prior(groups, prior or Belief())
    if not trials:
        return Learned(question, groups, (Component(1.0, mean, np.diag(sd**2)),))
    model = _Model.of(question, groups, [trial.plan for trial in trials])
    measured = np.log([trial.step_s for trial in trials])
    noise = np.array([np.hypot(MODEL_SD, trial.spread_s / trial.step_s) for trial in trials])
    facts = _Facts(measured, noise, mean, sd, len(groups))
    found = _different([_fit(model, facts, start) for start in _starts(model, facts)])
    return Learned(question, groups, _with_hope(found, model, facts))


@dataclass(frozen=True)
class _Facts:
    """Logarithms of measured steps and their errors; prior means and deviations of parameters, slowness first."""

    measured: Any
    noise: Any
    mean: Any
    sd: Any
    groups: int

    def loss(self, values: Any, parameters: Any) -> float:
        """The negative log-posterior of parameters for which the model has these values."""
        off = (values - self.measured) / self.noise
        far = ((parameters - self.mean) / self.sd) ** 2
        slow, weights = far[: self.groups], far[self.groups :]
        return float(off @ off + (FREEDOM + 1) * np.log1p(slow / FREEDOM).sum() + weights.sum()) / 2

    def misfit(self, values: Any) -> float:
        """The negative log-likelihood of the trials alone, without the prior."""
        off = (values - self.measured) / self.noise
        return float(off @ off) / 2

    def ridge(self, parameters: Any) -> Any:
        """Ridge weight of each parameter at this point."""
        found = self.sd**-2.0
        slow = slice(self.groups)
        far = (parameters - self.mean)[slow] ** 2
        found[slow] = (FREEDOM + 1) / (FREEDOM * self.sd[slow] ** 2 + far)
        return found


def _starts(model: _Model, facts: _Facts) -> list[Any]:
    """Starting points: the prior means, and those with one group of links slower or faster that explain most."""
    found = []
    for group in range(facts.groups):
        for slower in SLOWER:
            parameters = facts.mean.copy()
            parameters[group] += slower
            found.append((facts.loss(model.log(parameters), parameters), parameters))
    found.sort(key=lambda each: each[0])
    return [facts.mean, *(parameters for _, parameters in found[: EXPLANATIONS - 1])]


def _fit(model: _Model, facts: _Facts, start: Any) -> tuple[float, Any, Any]:
    """The logarithm of an explanation's evidence (Laplace), its mean and its covariance."""
    at, loss = start, facts.loss(model.log(start), start)
    covariance = np.diag(1 / facts.ridge(start))
    for _ in range(LINEARISATIONS):
        widths = np.clip(np.sqrt(np.diag(covariance)), NARROWEST_SD, WIDEST_SD)
        values, slopes = model.linearised(at, widths)
        ridge = facts.ridge(at)
        scaled = slopes / facts.noise[:, None]
        covariance = np.linalg.inv(scaled.T @ scaled + np.diag(ridge))
        wanted = _fitted(values - slopes @ at, slopes, facts, ridge)
        steps = [at + part * (wanted - at) for part in STEP_PARTS]
        nearer = [(facts.loss(model.log(each), each), each) for each in steps]
        least, closest = min(nearer, key=lambda each: each[0])
        if least >= loss:
            break
        at, loss = closest, least
    return float(np.linalg.slogdet(covariance)[1] / 2 - loss), at, (covariance + covariance.T) / 2


def _different(fitted: Sequence[tuple[float, Any, Any]]) -> tuple[Component, ...]:
    """Distinct explanations that are not much less likely than the likeliest."""
    best = max(evidence for evidence, _, _ in fitted)
    found: list[Component] = []
    for evidence, mean, covariance in sorted(fitted, key=lambda each: -each[0]):
        known = any(np.abs(mean - each.mean).max() < ALIKE for each in found)
        if not known and evidence > best + math.log(UNLIKELY):
            found.append(Component(math.exp(evidence - best), mean, covariance))
    return tuple(found)


def _with_hope(found: tuple[Component, ...], model: _Model, facts: _Facts) -> tuple[Component, ...]:
    """Add an explanation in which slow links are as fast as the fastest of their kind: all of them, or one, if no trial disagrees.

    If the file says that a host is slow, plans spare it, and their times only prove that it is fast enough for them: without this
    explanation, no plan that uses the host would ever be tried.
    """
    likeliest = found[0]
    doubted = facts.misfit(model.log(likeliest.mean)) + DOUBT
    slow = list(_could_be_faster(model.graph, model.groups, likeliest.mean))
    for hoped in [slow, *([each] for each in slow)] if len(slow) > 1 else [[each] for each in slow]:
        said = facts.mean.copy()
        for group, faster in hoped:
            said[group] = likeliest.mean[group] - faster
        _, mean, covariance = _fit(model, replace(facts, mean=said), said)
        if facts.misfit(model.log(mean)) <= doubted:
            return (likeliest, Component(HOPE, mean, covariance), *found[1:])
    return found


def _could_be_faster(graph: Network, groups: Groups, parameters: Any) -> Iterator[tuple[int, float]]:
    """Groups of hosts, trunks and paths that are believed to be slower than others, with the logarithm of the ratio."""
    links = _slowed(graph, groups, parameters).links
    fastest: dict[str, float] = {}
    for link in links:
        kind = _kind(link.name)
        fastest[kind] = max(fastest.get(kind, 0.0), link.bit_per_s)
    for at, group in enumerate(groups):
        names = {_undirected(links[link].name) for link in group.links}
        if len(names) == 1 and len(group.links) > 1:
            slowest = min(links[link].bit_per_s for link in group.links)
            faster = math.log(fastest[_kind(links[group.links[0]].name)] / slowest)
            if faster > ALIKE:
                yield at, faster


@dataclass(frozen=True)
class _Model:
    """Logarithms of plans' steps as functions of the parameters."""

    graph: Network
    groups: Groups
    steps: Steps
    features: Any

    @classmethod
    def of(cls, question: Question, groups: Groups, plans: Sequence[Plan]) -> _Model:
        correction = question.correction
        factor = as_modelled if correction is None else correction.factor
        steps = Steps(plans, question.profile, factor)
        predicted = steps.on(question.graph)
        pairs = zip(plans, predicted, strict=True)
        found = np.array([features(plan, question.profile, step_s) for plan, step_s in pairs])
        return cls(question.graph, groups, steps, found.reshape(len(plans), len(NAMES)))

    def logs(self, draws: Any) -> Any:
        """Logarithms by draw and plan."""
        return np.array([self.log(draw) for draw in draws])

    def linearised(self, at: Any, widths: Any) -> tuple[Any, Any]:
        """Values at a point, and the slope of each parameter over its width."""
        values = self.log(at)
        slopes = np.empty((len(values), len(at)))
        slopes[:, len(self.groups) :] = self.features
        for parameter in range(len(self.groups)):
            moved = np.zeros(len(at))
            moved[parameter] = widths[parameter]
            slopes[:, parameter] = (self.log(at + moved) - self.log(at - moved)) / (2 * widths[parameter])
        return values, slopes

    def log(self, parameters: Any) -> Any:
        """Logarithms by plan."""
        found = np.log(self.steps.on(_slowed(self.graph, self.groups, parameters)))
        return found + self.features @ parameters[len(self.groups) :]


def _fitted(base: Any, slopes: Any, facts: _Facts, ridge: Any) -> Any:
    """The most likely parameters of a linear model: least squares, the prior, and the logistic loss of pairs, scaled to one per
    trial; by Newton's method."""
    measured, noise, mean = facts.measured, facts.noise, facts.mean
    slower, faster = np.nonzero(measured[:, None] > measured[None, :])
    scale = np.hypot(noise[slower], noise[faster])[:, None]
    apart = (slopes[slower] - slopes[faster]) / scale
    offset = (base[slower] - base[faster]) / scale[:, 0]
    each = 1.0 / max(1, len(measured) - 1)
    scaled, target = slopes / noise[:, None], (measured - base) / noise
    least_squares = scaled.T @ scaled + np.diag(ridge)
    found = np.linalg.solve(least_squares, scaled.T @ target + ridge * mean)
    for _ in range(NEWTON_STEPS):
        wrong = 1.0 / (1.0 + np.exp(np.clip(apart @ found + offset, -50.0, 50.0)))
        gradient = scaled.T @ (scaled @ found - target) + ridge * (found - mean) - each * apart.T @ wrong
        curvature = least_squares + each * (apart * (wrong * (1 - wrong))[:, None]).T @ apart
        found = found - np.linalg.solve(curvature, gradient)
    return found


def _prior(groups: Groups, belief: Belief) -> tuple[Any, Any]:
    def estimate(name: str, known: dict[str, Estimate], sd: float) -> Estimate:
        mean, own_sd = known.get(name, (0.0, sd))
        return mean, min(sd, float(np.hypot(own_sd, CHANGED_SD))) if name in known else sd

    found = [estimate(group.name, belief.links, group.sd) for group in groups]
    found += [estimate(name, belief.weights, WEIGHT_SD.get(name, FEATURE_SD)) for name in NAMES]
    mean, sd = zip(*found, strict=True)
    return np.array(mean), np.array(sd)


def _groups(graph: Network) -> Groups:
    """Groups of links that some pair of ranks crosses: kinds, both directions, single links."""
    kinds: dict[str, list[int]] = {}
    both: dict[str, list[int]] = {}
    single: dict[str, list[int]] = {}
    for at in sorted({link for pair in graph.pairs() for link in graph.path(*pair)[0]}):
        name = graph.links[at].name
        kinds.setdefault(_kind(name), []).append(at)
        both.setdefault(_undirected(name), []).append(at)
        single.setdefault(name, []).append(at)
    found: list[Group] = []
    for level, sd in ((kinds, KIND_SD), (both, BOTH_SD), (single, LINK_SD)):
        known = {group.links for group in found}
        groups = [Group(name, tuple(links), sd) for name, links in level.items()]
        if found and len(found) + len(groups) > GROUPS_MAX:
            break
        found += [group for group in groups if group.links not in known]
    return tuple(found)


def _kind(link: str) -> str:
    """Kind of a link, by the names in `hocket.artefacts.network`.

    >>> [_kind(name) for name in ("h0 in", "trunk of a out", "a to b", "memory of h0")]
    ['links of hosts', 'trunks', 'paths', 'memories']
    """
    if link.startswith("trunk of "):
        return "trunks"
    if link.startswith("memory of "):
        return "memories"
    return "paths" if " to " in link else "links of hosts"


def _undirected(link: str) -> str:
    """Return one name for both directions of a link.

    >>> _undirected("h0 in"), _undirected("b to a"), _undirected("memory of a")
    ('h0', 'a and b', 'memory of a')
    """
    if " to " in link:
        return " and ".join(sorted(link.split(" to ", 1)))
    return link.removesuffix(" in").removesuffix(" out")


def _slowed(graph: Network, groups: Groups, parameters: Any) -> Network:
    slow: dict[int, float] = {}
    for group, own in zip(groups, parameters, strict=False):
        for link in group.links:
            slow[link] = slow.get(link, 0.0) + float(own)
    return graph.slowed(
        {link: math.exp(min(SLOWNESS_MAX, max(-SLOWNESS_MAX, own))) for link, own in slow.items()}
    )
