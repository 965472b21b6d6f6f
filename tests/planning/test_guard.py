"""Schedules that train, and schedules that do not: the guard against training itself on quadratics."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.errors import UsageError
from hocket.planning.guard import (
    MARGIN,
    ROUNDS,
    Turns,
    accepted,
    checks,
    compatible,
    described,
    risk,
    stability_limit,
    used,
)
from hocket.planning.walk import Walk

WALK = Walk(loss=2.3, floor=0.0, rate=0.05, drift=0.6, noise=1.0, batch=64)
SYNCHRONOUS = Turns(1, ((0, 0, 0),))
DELAYED = Turns(1, ((0, 0, 1),))


def largest_root(delay, momentum, step):
    coefficients = np.zeros(delay + 2)
    coefficients[0] = 1
    coefficients[1] -= 1 + momentum
    if delay >= 1:
        coefficients[2] += momentum
        coefficients[-1] += step
    else:
        coefficients = np.array([1, -(1 + momentum - step), momentum])
    return abs(np.roots(coefficients)).max()


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("delay", range(5))
def test_the_limit_is_where_a_root_leaves_the_circle(delay, momentum):
    """Rates that diverge would be called stable, or stable ones refused."""
    limit = stability_limit(delay, momentum)
    assert largest_root(delay, momentum, limit * 0.999) < 1
    assert largest_root(delay, momentum, limit * 1.001) > 1
    # Below it there is no other place where a root leaves.
    assert all(largest_root(delay, momentum, limit * share) < 1 for share in np.linspace(0.01, 0.99, 40))


@pytest.mark.parametrize("delay", range(1, 6))
def test_the_limit_without_momentum(delay):
    """The closed form 2 sin(π / (2(2d+1))) is known."""
    assert stability_limit(delay, 0.0) == pytest.approx(2 * math.sin(math.pi / (2 * (2 * delay + 1))))
    assert stability_limit(1, 0.9) == pytest.approx(0.1)
    with pytest.raises(UsageError, match="momentum"):
        stability_limit(1, 1.0)


@settings(max_examples=100)
@given(
    delay=st.integers(0, 3),
    momentum=st.floats(0, 0.95),
    share=st.floats(0.1, 1.9).filter(lambda share: abs(share - 1) > 0.05),
)
def test_training_on_a_quadratic_keeps_to_the_limit(delay, momentum, share):
    """The polynomial would be of another optimizer than the one that runs: heavy ball as PyTorch's SGD steps it."""
    step = share * stability_limit(delay, momentum)
    values, velocity = [1.0] * (delay + 1), 0.0
    for _ in range(4_000):
        velocity = momentum * velocity + values[-1 - delay]
        values.append(values[-1] - step * velocity)
        if abs(values[-1]) > 1e12:
            break
    diverges = max(map(abs, values[-500:])) > max(map(abs, values[:500])) or abs(values[-1]) > 1e12
    assert diverges == (share > 1)


def test_staleness_counts_updates_between():
    """Delays would be counted in iterations where they are counted in updates, and merged schedules be refused."""
    assert SYNCHRONOUS.staleness == 0
    assert DELAYED.staleness == 1
    assert Turns(1, ((0, 0, 2),)).staleness == 2
    assert Turns(3, ((0, 2, 2),)).staleness == 0
    assert Turns(3, ((0, 2, 5),)).staleness == 1
    # The walk-through of DeFT's Fig 4: lengths 1, 1, 2, each applied at the end of the next.
    assert Turns(4, ((0, 0, 1), (1, 1, 3), (2, 3, 4))).staleness == 1


def test_a_rate_between_the_limits_is_refused():
    """Delayed training would diverge where synchronous training does not (row R6)."""
    for share in (1.2, 5.0, 30.0):
        curvature = share * stability_limit(1, 0.9) / WALK.rate
        assert curvature * WALK.rate < stability_limit(0, 0.9)
        found = checks(WALK, DELAYED, "one", rate=WALK.rate, momentum=0.9, curvature=curvature)
        assert not accepted(found)
        assert [check.name for check in found if check.passed is False] == ["stability"]
        assert accepted(checks(WALK, SYNCHRONOUS, "one", rate=WALK.rate, momentum=0.9, curvature=curvature))
    safe = 0.9 * MARGIN * stability_limit(1, 0.9) / WALK.rate
    assert accepted(checks(WALK, DELAYED, "one", rate=WALK.rate, momentum=0.9, curvature=safe))


def test_an_unknown_curvature_is_reported_as_unknown():
    """A check that nobody made would count as passed."""
    stability = checks(WALK, DELAYED, "one", rate=WALK.rate, momentum=0.9, curvature=None)[-1]
    assert stability.passed is None
    assert "unknown" in described(stability)
    assert used(stability) == 0.0


def test_late_adam_of_unknown_stability_is_refused():
    """Broken: AdamW would learn slower by late gradients, with nothing that shows it while it trains."""

    def stability(turns, *, walks, curvature=None):
        found = checks(None, turns, "one", rate=0.001, momentum=0.9, curvature=curvature, walks=walks)
        assert accepted(found) == (found[-1].passed is not False)
        return found[-1]

    refused = stability(DELAYED, walks=False)
    assert refused.passed is False
    assert described(refused) == "stability: limit 0.05, unknown, and so refused"
    # The sentinel sees late SGD that diverges; own gradients stand for what is late; a known curvature decides.
    for turns, walks in ((DELAYED, True), (DELAYED._replace(own_first=True), False)):
        assert stability(turns, walks=walks).passed is None
    assert stability(SYNCHRONOUS, walks=False).passed is True
    assert stability(DELAYED, walks=False, curvature=10.0).passed is True
    assert stability(DELAYED, walks=False, curvature=100.0).passed is False


def test_own_gradients_first_of_unknown_stability_are_refused_where_little_is_stable():
    """Broken: merged by 4 at a rate that suits synchronous training, a model would learn at half the speed, and no sentinel would
    see why. Merged by 2 and without momentum, the stable range is hardly narrower."""

    def stability(merged, momentum, curvature=None, narrower=4.0):
        turns = Turns(merged, ((0, merged - 1, merged),), own_first=True)
        *_, found = checks(
            None, turns, "linear", rate=0.1, momentum=momentum, curvature=curvature, narrower=narrower
        )
        return found.passed

    assert stability(4, 0.9) is False
    assert stability(2, 0.9) is stability(4, 0.0) is stability(4, 0.9, narrower=math.inf) is None
    assert (stability(4, 0.9, 1.0), stability(4, 0.9, 30.0)) == (True, False)


def test_risk_orders_schedules_by_what_they_leave_of_the_stable_range():
    """A training that goes wrong would retreat to a schedule that is no safer."""
    merged = Turns(2, ((0, 1, 1),))
    both = Turns(2, ((0, 1, 3),))
    risks = [risk(turns, "linear", 0.9) for turns in (SYNCHRONOUS, merged, DELAYED, both)]
    assert risks == sorted(risks)
    assert len(set(risks)) == 4
    assert risks[2] == pytest.approx(38 * risks[0])


def test_slow_learning_is_refused():
    """Merging eight iterations without raising the rate learns at an eighth of the speed."""
    late = WALK._replace(rate=1e-3, noise=0.0)
    merged = Turns(8, ((0, 7, 7),))
    found = checks(late, merged, "one", rate=late.rate, momentum=0.0, curvature=1.0)
    assert [check.name for check in found if check.passed is False] == ["progress"]
    assert accepted(checks(late, merged, "linear", rate=late.rate, momentum=0.0, curvature=1.0))


def test_the_worst_floor_counts():
    """A floor of 0 would make the check blind where the loss ends far above it."""
    walk = Walk(loss=2.3, floor=0.0, rate=1e-3, drift=1.0, noise=0.0, batch=64)
    merged = Turns(4, ((0, 3, 3),))
    shares = [
        checks(walk, merged, "one", rate=walk.rate, momentum=0, curvature=1.0, floors=f)[1].value
        for f in ((), (2.2,))
    ]
    alone = checks(walk._replace(floor=2.2), merged, "one", rate=walk.rate, momentum=0, curvature=1.0)[
        1
    ].value
    assert shares[1] == min(shares[0], alone)
    noisy = checks(walk._replace(noise=1e6), merged, "one", rate=walk.rate, momentum=0, curvature=1.0)[1]
    assert noisy.passed is None


def test_windows_are_enlarged_until_the_ratio_is_kept():
    """DeFT's loop would take the first schedule, or never end."""
    steep = Walk(loss=2.3, floor=0.0, rate=0.2, drift=0.6, noise=0.0, batch=64)
    asked = []

    def solve(factor):
        asked.append(factor)
        merge = max(1, 4 - len(asked))
        return Turns(merge, ((0, merge - 1, merge - 1),))

    found = compatible(solve, steep, "one")
    assert found is not None
    assert found.turns.merges == (1,)
    assert asked == pytest.approx([1.0, 1.1, 1.21])
    asked.clear()
    assert compatible(lambda factor: asked.append(factor) or Turns(4, ((0, 3, 3),)), steep, "one") is None
    assert len(asked) == ROUNDS
