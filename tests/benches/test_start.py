"""`python -m benches start`, small."""

import sys

import pytest

from benches import start
from tests.support import warm

pytestmark = pytest.mark.tools


def test_every_rank_tells_what_it_has_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: the mean over ranks would be that of the ranks which came to an end, or of their parents."""
    monkeypatch.setattr(sys, "executable", warm.interpreter())
    assert all(each > 0 for each in start.cpu_s(2))
    alone, among, ratio = start.measure(world=2, rounds=1)
    assert ratio.value == pytest.approx(among.value / alone.value)
