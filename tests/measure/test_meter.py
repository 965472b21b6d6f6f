"""Rates from bytes as they arrive."""

from __future__ import annotations

import pytest

from hocket.tools.probe.meter import Meter

pytestmark = pytest.mark.hosts


def fed(meter: Meter, rates_bit_per_s: list[float], tick_s: float = 0.01, ticks: int = 10) -> float:
    """Feed so many ticks at each rate; the meter's answer and nothing after it."""
    now_s = 5.0
    meter.add(now_s, 1000)
    for rate in rates_bit_per_s:
        for _ in range(ticks):
            now_s += tick_s
            meter.add(now_s, round(rate * tick_s / 8))
            if meter.bit_per_s is not None:
                return meter.bit_per_s
    raise AssertionError("no answer")


def test_a_steady_link_needs_three_windows() -> None:
    """Broken: a probe of many hosts would take far longer than it must."""
    meter = Meter(10.0, window_s=0.1)
    assert fed(meter, [1e8] * 4) == pytest.approx(1e8, rel=0.01)


def test_slow_start_and_what_was_held_back_are_not_counted() -> None:
    """Broken: data that waits for a lost packet, delivered at once, would be read as a faster link."""
    assert fed(Meter(10.0, window_s=0.1), [3e8, 0, 2.2e8, 1e8, 1e8, 1e8]) == pytest.approx(1e8, rel=0.01)


def test_a_link_that_never_settles_gives_its_median() -> None:
    """Broken: a probe would hang on a disturbed link, or report one of its extremes."""
    assert fed(Meter(0.75, window_s=0.1), [9e8, 1e8, 2e8, 1e8, 0, 1.5e8, 1e8, 2e8]) == pytest.approx(
        1e8, rel=0.3
    )


def test_without_windows_it_is_the_mean_of_the_later_part() -> None:
    """Broken: flows that take turns on a trunk would not add up to it."""
    assert fed(Meter(1.0, window_s=None), [9e8] * 4 + [1e8, 2e8] * 4) == pytest.approx(1.5e8, rel=0.05)
