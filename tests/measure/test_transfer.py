"""Connections of a probe's step that cannot all be had."""

from __future__ import annotations

import socket

import pytest

from hocket.errors import PeerError
from hocket.tools.probe.datagrams import TOKEN_BYTES
from hocket.tools.probe.transfer import Peer, Station

pytestmark = pytest.mark.hosts


@pytest.mark.parametrize("lanes", [1, 2])
def test_what_was_opened_is_closed_when_a_peer_goes(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: each interrupted step would leave connections behind, until no more can be opened."""
    opened: list[socket.socket] = []
    ends: list[socket.socket] = []

    def connect(_to: tuple[str, int], timeout: float) -> socket.socket:
        assert timeout > 0
        near, far = socket.socketpair()
        opened.append(near)
        ends.append(far)
        if len(opened) == lanes:
            far.close()  # the greeting finds nobody
        return near

    monkeypatch.setattr(socket, "create_connection", connect)
    station = Station("127.0.0.1", b"t" * TOKEN_BYTES)
    try:
        station.meet([Peer("here", "127.0.0.1", 1), Peer("there", "127.0.0.1", 2)], 0)
        with pytest.raises(PeerError, match="cannot reach") as refused:
            station.open({1: lanes}, {}, 0)
        assert (refused.value.rank, refused.value.host) == (1, "there")
        assert [link.fileno() for link in opened] == [-1] * lanes
    finally:
        station.close()
        for end in ends:
            end.close()
