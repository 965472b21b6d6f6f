"""Time-outs of the waits in which a member of an elastic job needs the coordinator or other members."""

from __future__ import annotations

from hocket.settings import Settings

DECIDES_IN = 3
"""Time that the coordinator may take to decide on the next epoch, in multiples of the longest silence."""
AGAIN_S = 30.0
"""Time in which members that could not meet are called to another meeting."""


class Patience:
    """Time-outs that follow from the settings of a job's ranks.

    Attributes:
        founding_s: until all of a generation are ready for their first step.
        again_s: until members that could not meet are called once more.
        joining_s: until a process that joins is called to a meeting, from the last change of members that it has heard of.
    """

    def __init__(self, settings: Settings) -> None:
        self._rejoin_s = settings.rejoin_timeout_s or 0.0
        self._silence_max_s = settings.silence_max_s(elastic=True)
        self.founding_s = settings.with_another_launcher_s(settings.start_timeout_s) + self._rejoin_s
        self.again_s = settings.with_another_launcher_s(AGAIN_S) + self._rejoin_s
        # Members may first have to wait in vain for one that hangs, and the newcomer takes its place.
        self.joining_s = settings.with_another_launcher_s(self.decision_s(settings.timeout_s))

    def edge_s(self, timeout_s: float) -> float:
        """Return the time-out of a wait for newcomers between two steps."""
        return timeout_s + self._rejoin_s

    def decision_s(self, timeout_s: float) -> float:
        """Return the time-out of a wait for the next epoch: the coordinator waits for reports by its own clock."""
        return timeout_s + self._rejoin_s + DECIDES_IN * self._silence_max_s
