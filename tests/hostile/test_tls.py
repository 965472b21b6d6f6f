"""Engines over TLS: right sums, nothing readable on the wire, and an end when somebody touches it."""

import pytest

from hocket import PeerError
from tests.hostile.cables import ELEMENTS, exchange


def test_what_crosses_the_wire_cannot_be_read():
    """Gradients would be readable by everybody on the network."""
    for tls in (False, True):
        outcomes, seen = exchange(None, tls=tls)
        assert all((sums == 3).all() for sums in outcomes)
        assert len(seen) > 4 * ELEMENTS / 2
        # Rank 1 sends twos, then sums: threes.
        assert (b"\x00\x00\x00\x40" * 8 in seen) == (not tls)
        assert (b"bucket" not in seen) or not tls


@pytest.mark.parametrize("checksum", [False, True])
def test_a_changed_byte_ends_the_job(checksum):
    """Somebody on the path could change gradients."""
    outcomes, _ = exchange(300_000, tls=True, checksum=checksum)
    assert all(isinstance(error, PeerError) for error in outcomes), outcomes
    assert any((error.rank, error.host, error.why) == (1, "h1", "damaged") for error in outcomes), outcomes
