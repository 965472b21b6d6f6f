"""Costs and disturbances of a simulated run, as plain data: constants of the machines, chance, stragglers, changing links."""

from __future__ import annotations

from msgspec import Struct

from hocket._native import CAST_S_PER_BYTE, COPY_S_PER_BYTE, MESSAGE_S, REDUCE_S_PER_BYTE, TCP_S_PER_BYTE


class Costs(Struct, frozen=True, kw_only=True):
    """Engine time of a rank: per message on each side, and per byte of full-width elements; `socket_s_per_byte`: per byte between
    hosts, on each side, while bytes move.

    `rendezvous`: data flows once its receive is posted, as in the native executor; otherwise at once.
    """

    send_s: float = MESSAGE_S
    receive_s: float = MESSAGE_S
    reduce_s_per_byte: float = REDUCE_S_PER_BYTE
    cast_s_per_byte: float = CAST_S_PER_BYTE
    copy_s_per_byte: float = COPY_S_PER_BYTE
    socket_s_per_byte: float = TCP_S_PER_BYTE
    rendezvous: bool = True

    def native(self) -> tuple[float, float, float, float, float, float, bool]:
        """Return the arguments for the flow engine."""
        return (
            self.send_s,
            self.receive_s,
            self.reduce_s_per_byte,
            self.cast_s_per_byte,
            self.copy_s_per_byte,
            self.socket_s_per_byte,
            self.rendezvous,
        )


class LinkChange(Struct, frozen=True, kw_only=True):
    """Change of a link's rate at a time; 0: it fails. `link` is its name."""

    link: str
    at_s: float
    bit_per_s: float = 0.0


class Conditions(Struct, frozen=True, kw_only=True):
    """Deviations from an ideal run.

    `jitter`: every latency and every engine time is longer by a share drawn uniformly from 0 to this. `slow`:
    stragglers, by rank the factor on their computation and on their engine's time. `paces`: factors on the computation alone of all
    ranks, or none. `late`: by rank, seconds by which it begins each iteration late.
    """

    seed: int = 0
    jitter: float = 0.0
    slow: tuple[tuple[int, float], ...] = ()
    paces: tuple[float, ...] = ()
    late: tuple[tuple[int, float], ...] = ()
    changes: tuple[LinkChange, ...] = ()
