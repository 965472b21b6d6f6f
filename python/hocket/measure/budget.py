"""How much of a link's time measuring may take beside training. Pure."""

from __future__ import annotations

SHARE = 0.01
"""Of a link's time, on average."""

SAVED_S_MAX = 2.0
"""What is saved at most while nothing is measured, and what a job has in advance, the share of its first 200 s. A look of four
hosts in two racks took 1 to 1.5 s on a trunk of 100 Mbit/s that training used at the same time."""


class Budget:
    """Of one host, in seconds in which something is on its links. Times are of any one clock.

    >>> budget = Budget(0.0)
    >>> budget.spend(2.2)
    >>> round(budget.wait_s(10.0), 3)
    10.0
    >>> budget.wait_s(21.0)
    0.0
    """

    def __init__(self, now_s: float) -> None:
        """It begins with all that can be saved."""
        self._saved_s, self._at_s = SAVED_S_MAX, now_s

    def spend(self, busy_s: float) -> None:
        """Something was on a link for so long, more than was saved perhaps: then it is made up for by waiting."""
        self._saved_s -= busy_s

    def wait_s(self, now_s: float) -> float:
        """How long to wait before more may be spent."""
        earned_s = SHARE * (now_s - self._at_s)
        self._saved_s, self._at_s = min(self._saved_s + earned_s, SAVED_S_MAX), now_s
        return max(0.0, -self._saved_s / SHARE)
