"""Members that the coordinator looks at once others complain of them."""

from __future__ import annotations

import struct

import pytest

from hocket.members.roll import Roll

SILENCE_S = 5.0
TICK_S = 0.05
INFO_BYTES = 256


class Connections:
    """What the system would tell, with a clock that moves on when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.acknowledges = True
        self._cut_s = 0.0
        monkeypatch.setattr("hocket.members.sight.time.monotonic", lambda: self.now_s)
        self.roll = Roll(SILENCE_S)
        self.roll.tcp_info = self.tcp_info
        self.roll.enter(7, 3, "rank 3 on d")

    def cut(self) -> None:
        self.acknowledges, self._cut_s = False, self.now_s

    def tcp_info(self, client: int) -> bytes:
        assert client == 7
        since_s = 0.0 if self.acknowledges else self.now_s - self._cut_s
        info = bytearray(INFO_BYTES)
        struct.pack_into("=I", info, 24, not self.acknowledges)
        struct.pack_into("=I", info, 56, round(since_s * 1e3))
        struct.pack_into("=II", info, 68, 1000, 500)
        return bytes(info)

    def lost_after_s(self, limit_s: float, *, doubted: bool) -> float | None:
        """Time until member 3 counts as silent, within a limit."""
        began_s = self.now_s
        while self.now_s < began_s + limit_s:
            self.now_s += TICK_S
            if any(found == "lost" for _, found in self.roll.look([3] if doubted else [])):
                return self.now_s - began_s
        return None


def test_a_doubted_member_whose_host_acknowledges_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: those that miss a host that is cut off would wait until the coordinator misses a process."""
    connections = Connections(monkeypatch)
    connections.cut()
    assert connections.lost_after_s(0.15, doubted=True) is None
    lost_s = connections.lost_after_s(1.0, doubted=True)
    assert lost_s is not None
    assert lost_s <= 0.2
    assert connections.roll.silent == {3}


def test_a_doubted_member_whose_host_acknowledges_has_all_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a process that is stopped for a second would be left behind as soon as somebody waits for it."""
    connections = Connections(monkeypatch)
    assert connections.lost_after_s(SILENCE_S - 0.1, doubted=True) is None
    assert connections.lost_after_s(1.0, doubted=True) is not None


def test_a_member_of_which_nobody_complains_has_all_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a cut that no rank notices would cost a member; or an earlier doubt would count."""
    connections = Connections(monkeypatch)
    connections.cut()
    assert connections.lost_after_s(0.15, doubted=True) is None
    assert connections.lost_after_s(2.0, doubted=False) is None
    assert connections.lost_after_s(0.15, doubted=True) is None
