"""A probe at scale: every host meets a few landmarks instead of all the others, and some pairs check the result.

1. all landmarks query all hosts at once, one question of each in flight at a time, beginning at hosts far apart;
2. the other latencies are completed (`completion.py`);
3. some rounds of a tournament measure held-out pairs, which gives the error, and the rate of every host's own link.

A host may take part in as many measurements at once as there are landmarks; the low quantile ignores the resulting
delays.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from hocket.measure.rounds import meeting, rounds_of
from hocket.tools.probe.completion import complete, errors
from hocket.tools.probe.steps import Flow, Progress, Steps

CHECKS = 3
"""Number of rounds of held-out pairs: one and a half pairs for each host."""

STEPS = 1 + 3 * CHECKS
SEED = 1
"""Seed for the landmarks, the same on all hosts."""

ROW_SHARE = 5e-3
"""Share of a pair's time for one host of a landmark's row, unless no answer came at all: rows have hundreds of
hosts."""


@dataclass(frozen=True)
class Found:
    """One-way latency of every pair, rate of every host's own link, and a sentence on the uncertainty."""

    latency_s: list[list[float]]
    links_bit_per_s: list[float]
    note: str


class Sampled:
    def __init__(self, steps: Steps, hosts: int, landmarks: int, pair_s: float, progress: Progress) -> None:
        """Choose `landmarks` of this many hosts; `pair_s`: see the options."""
        self._steps, self._hosts, self._progress = steps, hosts, progress
        self._pair_s = pair_s
        self._landmarks = sorted(random.Random(SEED).sample(range(hosts), landmarks))  # noqa: S311  # no secret

    @staticmethod
    def estimate_s(hosts: int, pair_s: float) -> float:
        return (hosts * ROW_SHARE + CHECKS) * pair_s

    def run(self) -> Found:
        self._tell(f"{len(self._landmarks)} landmarks ask {self._hosts} hosts")
        asked = self._steps.rows(self._landmarks, self._pair_s * ROW_SHARE)
        rows_s = np.zeros((len(self._landmarks), self._hosts))
        for at, landmark in enumerate(self._landmarks):
            for other in range(self._hosts):
                if other != landmark:
                    rows_s[at, other] = self._between(asked, landmark, other)
        completed_s = complete(rows_s, self._landmarks)
        held_out_s, links = self._check()
        off = errors(completed_s, held_out_s)
        note = (
            f"{len(self._landmarks)} landmarks were measured, other latencies completed from them: of {len(off)} pairs that were "
            f"measured to check, half are off by at most {np.median(off):.0%}, nine of ten by at most {np.quantile(off, 0.9):.0%}"
        )
        for pair, measured_s in held_out_s.items():
            completed_s[pair] = completed_s[pair[::-1]] = measured_s
        return Found(completed_s.tolist(), links, note)

    def _check(self) -> tuple[dict[Flow, float], list[float]]:
        """One-way latencies of pairs without a landmark, and the fastest flow of each host."""
        held_out_s: dict[Flow, float] = {}
        links = [0.0] * self._hosts
        rounds = rounds_of(self._hosts)
        for check in range(CHECKS):
            pairs = meeting(self._hosts, check * rounds // CHECKS)
            self._tell(f"pairs to check, round {check + 1} of {CHECKS}")
            for pair, round_trip_s in self._steps.latencies(pairs).items():
                if not set(pair) & set(self._landmarks):
                    held_out_s[pair] = round_trip_s / 2
            for flows in (pairs, tuple((b, a) for a, b in pairs)):
                for pair, rate in self._steps.rates(flows).items():
                    for host in pair:
                        links[host] = max(links[host], rate)
        return held_out_s, links

    @staticmethod
    def _between(asked: dict[Flow, float], landmark: int, other: int) -> float:
        """One-way latency, from the slower of the two round trips if both ends measured."""
        return max(asked[landmark, other], asked.get((other, landmark), 0.0)) / 2

    def _tell(self, what: str) -> None:
        self._progress(self._steps.done, STEPS, what)
