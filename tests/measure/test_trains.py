"""Packet trains: what they tell of a link, over real sockets and from arrivals made up."""

from __future__ import annotations

import random
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.tools.probe import datagrams, trains
from hocket.tools.probe.pace import OVERHEAD_BYTES, Pace
from hocket.tools.probe.trains import SEGMENT_BYTES, TRAINS, TRAINS_BYTES, Train

pytestmark = pytest.mark.hosts

TOKEN = bytes(range(trains.TOKEN_BYTES))


def spaced(rate_bit_per_s: float, count: int = 200, burst: int = 0) -> Train:
    """A train that a link of that rate has spread, behind a token bucket that let so many pass."""
    gap_ns = SEGMENT_BYTES * 8e9 / rate_bit_per_s
    return Train([(int(max(0, at - burst) * gap_ns) + at, SEGMENT_BYTES) for at in range(count)])


@given(st.floats(1e6, 1e11), st.integers(0, 90))
def test_the_narrowest_links_rate_is_told(rate: float, burst: int) -> None:
    """Broken: bandwidth would depend on what a token bucket lets pass at once."""
    told = spaced(rate, burst=burst).bit_per_s()
    assert told == pytest.approx(rate, rel=0.02)


def test_trains_that_met_other_traffic_do_not_decide() -> None:
    """Broken: one crossing flow would make a link look slow."""
    assert trains.settle([spaced(1e9), spaced(2e8), spaced(1e9), spaced(3e8), spaced(1e9)]) == pytest.approx(
        1e9, rel=0.02
    )


@pytest.mark.parametrize("arrivals", [[], [(5, 1400)], [(5, 1400)] * 50])
def test_what_tells_no_rate_is_no_rate(arrivals: list[tuple[int, int]]) -> None:
    """Broken: a lost train, or one that came at once, would be an infinitely fast link."""
    assert Train(arrivals).bit_per_s() is None
    assert trains.settle([Train(arrivals)]) is None


def test_packets_out_of_order_do_not_matter() -> None:
    """Broken: a network that reorders would be measured wrong."""
    train = spaced(1e9)
    random.Random(3).shuffle(train.arrivals)  # noqa: S311  # no secret
    assert train.bit_per_s() == pytest.approx(1e9, rel=0.02)


def test_trains_arrive_whole_over_real_sockets_and_strangers_do_not_count() -> None:
    """Broken: trains would not be received, or somebody else's datagrams would be."""
    sent = threading.Event()
    with datagrams.listen(socket.AF_INET, "127.0.0.2", 0) as link:
        found: dict[int, list[Train]] = {}
        receiver = threading.Thread(target=lambda: found.update(trains.receive(link, TOKEN, 3, [1], sent)))
        receiver.start()
        to = link.getsockname()
        for token, turn, source in ((bytes(16), 3, 1), (TOKEN, 4, 1), (TOKEN, 3, 2)):
            trains.send(("127.0.0.1", source), to, token, turn, Pace(1e12))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for noise in (b"", b"x", b"x" * 1400):
                stranger.sendto(noise, to)
        trains.send(("127.0.0.1", 1), to, TOKEN, 3, Pace(2e9))
        sent.set()
        receiver.join()
    came = sum(size for train in found[1] for _, size in train.arrivals)
    packets = TRAINS_BYTES // (SEGMENT_BYTES + OVERHEAD_BYTES)
    assert list(found) == [1]
    assert 0 < came <= packets * SEGMENT_BYTES
    assert all(len(train.arrivals) <= packets // TRAINS for train in found[1])
    assert trains.settle(found[1]) is not None


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=50), st.floats(1e6, 1e10))
def test_a_pace_is_kept_over_any_window(sizes: list[int], bit_per_s: float) -> None:
    """Broken: a probe would take more of a link than it was allowed."""
    now = [0.0]
    pace = Pace(bit_per_s, clock=lambda: now[0], sleep=lambda wait_s: now.__setitem__(0, now[0] + wait_s))
    went = []
    for size in sizes:
        pace.spend(size)
        went.append((now[0], size))
    for first in range(len(went)):
        for last in range(first + 1, len(went)):
            between = sum(size for _, size in went[first:last])
            assert between * 8 <= bit_per_s * (went[last][0] - went[first][0]) * (1 + 1e-6) + 1e-3
