"""Samples of an engine's connections."""

import pytest

from hocket.training.autopilot.traffic import Connections

MEGABYTE = 1 << 20


class Engine:
    def __init__(self, *states, paths=()):
        self._states = iter(states)
        self._paths = iter(paths)

    def paths(self):
        return next(self._paths, [])

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
    connections = Connections(engine, "abc")
    assert connections.sample() == connections.sample() == ()
    (sample,) = connections.sample()
    assert (sample.to, sample.sent_bytes) == (1, MEGABYTE)
    assert sample.busy_s == pytest.approx(0.25)


def test_what_a_path_turns_out_to_need_is_logged_once(caplog):
    """Nobody would know that a job between two sites is slow for want of a setting of the system."""
    plain, refused = (1, 12_000, "plain"), (1, 12_000, "refused")
    engine = Engine(
        *[[None] * 3] * 3, paths=[[None, plain, plain], [None, plain, refused], [None, plain, refused]]
    )
    connections = Connections(engine, "abc")
    with caplog.at_level("INFO", logger="hocket.job"):
        for _ in range(3):
            connections.sample()
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("rank 2 on c: 12 ms there and back, 1 connection; losses by chance slow them")
