"""What measuring beside training may take of a link, whatever it wants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.measure.budget import SAVED_S_MAX, SHARE, Budget

pytestmark = pytest.mark.hosts


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 2)), max_size=50))
def test_no_more_than_its_share_is_spent(rounds):
    """Training would wait for links that its own autopilot uses."""
    now_s = spent_s = 0.0
    largest_s = 0.0
    budget = Budget(now_s)
    for pause_s, busy_s in rounds:
        now_s += pause_s
        now_s += budget.wait_s(now_s)
        assert budget.wait_s(now_s + 1e-6) < 1e-3
        assert spent_s <= SAVED_S_MAX + SHARE * now_s + largest_s + 1e-6
        budget.spend(busy_s)
        spent_s += busy_s
        largest_s = max(largest_s, busy_s)


def test_after_a_long_time_no_more_than_what_is_saved_is_spent_at_once():
    """After a day of training, a look could fill links for a quarter of an hour."""
    budget = Budget(0.0)
    now_s = 86_400.0
    assert budget.wait_s(now_s) == 0.0
    budget.spend(SAVED_S_MAX + 0.1)
    assert abs(budget.wait_s(now_s) - 0.1 / SHARE) < 1e-6
