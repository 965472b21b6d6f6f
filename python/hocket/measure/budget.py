"""Limit on the time of links that measuring may take beside training. Pure."""

from __future__ import annotations

SHARE = 0.01
"""Fraction of a link's time for measuring, on average."""

SAVED_S_MAX = 2.0
"""Limit on the seconds saved while nothing is measured, and the initial balance, the share of a job's first 200 s. A look of four
hosts in two racks took 1 to 1.5 s on a trunk of 100 Mbit/s that training used at the same time."""


class Budget:
    """Budget of one host, in seconds during which its links are in use. Times may be of any one clock.

    >>> budget = Budget(0.0)
    >>> budget.spend(2.2)
    >>> round(budget.wait_s(10.0), 3)
    10.0
    >>> budget.wait_s(21.0)
    0.0
    """

    def __init__(self, now_s: float) -> None:
        self._saved_s, self._at_s = SAVED_S_MAX, now_s

    def spend(self, busy_s: float) -> None:
        """Spend seconds on a link; a negative balance is made up for by waiting."""
        self._saved_s -= busy_s

    def wait_s(self, now_s: float) -> float:
        """Seconds to wait before more may be spent."""
        earned_s = SHARE * (now_s - self._at_s)
        self._saved_s, self._at_s = min(self._saved_s + earned_s, SAVED_S_MAX), now_s
        return max(0.0, -self._saved_s / SHARE)
