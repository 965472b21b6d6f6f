"""Options of a probe: the method for rates, the limit on a link's use, and the pairs that are measured."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from hocket.errors import UsageError

Rates = Literal["trains", "tcp"]

LIMIT_BIT_PER_S = 100e6
"""Default limit: 1 % of a link of 10 Gbit/s."""

LEAST_BIT_PER_S = 1e6
"""Least limit: below it, the trains of one pair take longer than half a minute, and a probe takes too long."""

LANDMARKS_MIN = 4
"""Least number of landmarks: fewer see little of the network."""


PAIR_S = 1.0
"""Default time for a pair's latency; most networks reveal it in a tenth."""

PAIR_S_MAX = 600.0


class ProbeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a probe, equal on all its hosts.

    `rates`: `trains` of datagrams, which find the capacity of the narrowest link between two hosts and respect the
    limit, or `tcp`, transfers that load the network and so find how flows share links. `limit_bit_per_s`: rate of
    datagrams on a host's link, per direction, headers included. `pair_s`: longest measurement of a pair's latency, per
    direction, unless it is known to 2 % earlier. `sample`: number of landmarks; 0: all pairs are measured.
    """

    rates: Rates = "trains"
    limit_bit_per_s: float = LIMIT_BIT_PER_S
    pair_s: float = PAIR_S
    sample: int = 0

    def check(self, hosts: int) -> None:
        """Raise UsageError for options that do not fit the number of hosts."""
        if not (math.isfinite(self.limit_bit_per_s) and self.limit_bit_per_s >= LEAST_BIT_PER_S):
            raise UsageError(
                f"probe: a limit of {self.limit_bit_per_s:g} bit/s: it must be {LEAST_BIT_PER_S:g} or more"
            )
        if not 0 < self.pair_s <= PAIR_S_MAX:
            raise UsageError(
                f"probe: {self.pair_s:g} s for a pair: it must be above 0, and at most {PAIR_S_MAX:g}"
            )
        if self.sample and not LANDMARKS_MIN <= self.sample <= hosts // 2:
            raise UsageError(
                f"probe: {self.sample} landmarks among {hosts} hosts: from {LANDMARKS_MIN} to half of the hosts are possible\n"
                "hint: of fewer than some dozens of hosts all pairs are measured as fast"
            )
