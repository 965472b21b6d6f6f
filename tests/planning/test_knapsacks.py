"""Knapsacks of windows against OR-tools' CP-SAT, a model of its own; `python -m benches delays --row solver` compares 10,000.

Unit tests beside `crates/plan/src/knapsack` compare with brute force.
"""

import pytest

from benches.delays.instances import Window, models, small_windows
from benches.delays.optimum import optimum
from benches.delays.solver import algorithm_1, deft, front, not_slowed, rate, steady
from hocket import _native
from tests.support import drawn

WINDOWS = drawn.cases(300)


def has_solver():
    try:
        import ortools  # noqa: F401
    except ImportError:
        return False
    return True


needs_solver = pytest.mark.skipif(
    not has_solver(), reason="OR-tools is not here: it has no wheel for this Python"
)


@needs_solver
def test_packings_are_as_profitable_as_an_exact_solvers():
    """Links would be left idle, or sets be promised that do not fit."""
    fell_short, off = 0, 0
    for window in small_windows(seed=11, count=WINDOWS):
        best = optimum(window.items, window.until)
        links, profit, bound = _native.pack(window.items, window.until)
        assert profit == best == bound, window
        assert profit == sum(
            item[2] for item, link in zip(window.items, links, strict=True) if link is not None
        )
        claimed, kept = algorithm_1(window)
        assert kept <= best
        fell_short += kept < best
        off += claimed > kept
    # The paper's algorithm is another one: it misses optima, and claims what does not fit.
    assert fell_short > WINDOWS // 20
    assert off


@needs_solver
def test_the_exact_solver_knows_when_items_are_ready():
    """The comparison would be of two solvers with the same blindness."""
    window = Window([(10, [95], 95), (40, [30], 30), (70, [30], 30)], [100])
    assert optimum(window.items, window.until) == 60
    assert optimum([(0, [95], 95), *window.items[1:]], window.until) == 95
    # Two links, an item on one of them alone.
    assert optimum([(0, [50, 999], 50), (0, [60, 80], 60)], [100, 80]) == 110


def test_schedules_leave_links_no_more_idle_than_small_parts_do():
    """Updates would come less often than links allow, or than DeFT's own schedule makes them."""
    for model in models(seed=12, count=10, parts=20, coverages=(1.0, 2.5)):
        ours = front(model, [])
        assert not_slowed(ours, model) >= 0.97 * min(1.0, 1 / model.coverage)
        paper = deft(model)
        papers = steady(model, paper)
        chosen = front(model, [paper])
        assert max(rate(each[1:]) for each in chosen) >= rate(papers) * (1 - 1e-9)
        for schedule, iteration_s, updates in ours:
            assert steady(model, schedule) == pytest.approx((iteration_s, updates))
