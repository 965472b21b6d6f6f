"""What connections tell of the network: changes of links, and not noise, bursts or other plans."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.training.autopilot.traffic import LATEST, REFERENCE, Sample, Traffic

MEGABYTE = 1 << 20


def sample(bit_per_s, *, size=4 * MEGABYTE):
    return Sample(1, size, 8 * size / bit_per_s)


def seen(*rates):
    """A sample each, of rank 0."""
    traffic = Traffic()
    for rate in rates:
        traffic.learn([[sample(rate)], []])
    return traffic


@settings(max_examples=200)
@given(st.lists(st.floats(0.85e8, 1.15e8), max_size=100))
def test_noise_is_no_change(rates):
    """A job would look at its network again and again."""
    assert not seen(*rates).moved


@pytest.mark.parametrize("factor", [0.5, 2.0, 0.05])
def test_a_link_that_is_halved_or_restored_shows_within_three_samples(factor):
    """A job would wait until its steps have become slow, or never see that they could be faster."""
    before = [1e8, 0.9e8, 1.1e8, 1e8, 1.05e8]
    assert len(before) == REFERENCE
    assert not seen(*before, *[factor * 1e8] * (LATEST - 1)).moved
    assert seen(*before, *[factor * 1e8] * LATEST).moved


def test_one_sample_is_no_change():
    """A pause of another process would count as another network."""
    assert not seen(*[1e8] * REFERENCE, 1e7, 1e8, 1e7, 1e8, 1e7).moved


def test_samples_that_say_little_do_not_count():
    """A burst of some packets would look like a link of ten times the rate."""
    assert sample(1e8).tells
    assert not sample(1e9, size=1 << 16).tells
    assert not sample(1e10, size=MEGABYTE).tells


def test_what_was_seen_is_the_least_that_a_path_carries_until_something_begins():
    """A look that shared links with training would decide; or rates of a network that is no longer there."""
    traffic = seen(*[1e8] * REFERENCE, *[2e8] * LATEST)
    assert traffic.least_bit_per_s == {(0, 1): pytest.approx(2e8)}
    traffic.begin()
    assert traffic.least_bit_per_s == {}
    assert not traffic.moved
    traffic.learn([[sample(5e7)], []])
    assert traffic.least_bit_per_s == {(0, 1): pytest.approx(5e7)}


def test_what_changed_is_heard_by_samples_from_then_on():
    """The sample in which a link changed would count as half of the change."""
    traffic = seen(*[1e8] * REFERENCE, 0.75e8)
    traffic.listen()
    assert traffic.ratios == {}
    for _ in range(2):
        traffic.learn([[sample(0.5e8)], []])
    assert traffic.ratios == {(0, 1): pytest.approx(0.5)}
