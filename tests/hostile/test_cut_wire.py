"""Connections that break in the middle of a frame, or go silent without a word: the job ends, and says which link."""

import pytest

from hocket import PeerError
from tests.hostile.cables import ELEMENTS, TIMEOUT_S, exchange

MIDDLE = 2 * ELEMENTS - 50_000
"""Bytes into the half that a ring sends, far from either end of a frame's payload."""


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("at", [3000, MIDDLE], ids=["the first frame", "a late frame"])
def test_a_reset_in_the_middle_of_a_frame_is_named(at, tls):
    """Half of a bucket would be taken for all of it, or the ranks would wait for the rest."""
    # Told by the reset: `exchange` waits for no silence that long.
    outcomes, _ = exchange(reset_at=at, tls=tls, heartbeat_timeout_s=20 * TIMEOUT_S)
    for rank, outcome in enumerate(outcomes):
        assert isinstance(outcome, PeerError), outcome
        assert (outcome.rank, outcome.host, outcome.why) == (1 - rank, f"h{1 - rank}", "lost")


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_half_open_connection_is_named(tls):
    """A host that loses its power or its cable closes nothing: the others would wait for ever."""
    outcomes, _ = exchange(mute_at=MIDDLE, tls=tls, heartbeat_timeout_s=1.0)
    # Who noticed first tells nobody: nothing crosses.
    for rank, outcome in enumerate(outcomes):
        assert isinstance(outcome, PeerError), outcome
        assert (outcome.rank, outcome.host, outcome.why) == (1 - rank, f"h{1 - rank}", "silent")
        assert (outcome.program, outcome.launch) == (0, 0)
        assert "while `bucket 3`" in str(outcome)
