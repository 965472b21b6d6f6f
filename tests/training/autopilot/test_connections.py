"""Samples of an engine's connections."""

import pytest

from hocket.training.autopilot.traffic import Connections

MEGABYTE = 1 << 20


class Engine:
    def __init__(self, *states):
        self._states = iter(states)

    def connections(self):
        return next(self._states)


def numbers(sent_bytes, busy_us):
    return (500, 400, 10**8, sent_bytes, busy_us, 0)


def test_samples_are_what_was_sent_since_the_last_one():
    """Rates would be those since the job began, in which a change drowns."""
    engine = Engine(
        [None, None, None],
        [None, numbers(10 * MEGABYTE, 10**6), numbers(10, 10)],
        [None, numbers(11 * MEGABYTE, 10**6 + 250_000), numbers(20, 20)],
    )
    connections = Connections(engine)
    assert connections.sample() == connections.sample() == ()
    (sample,) = connections.sample()
    assert (sample.to, sample.sent_bytes) == (1, MEGABYTE)
    assert sample.busy_s == pytest.approx(0.25)
