"""Numbers of the steps that stand for all members, as a job and a generation's machine count them."""

from __future__ import annotations


class StepNumbers:
    """Steps of a job. Ranks that step alone make several between two that they make together, which alone the machine counts.

    Attributes:
        next: the machine's number of the step that may stand next.
    """

    def __init__(self) -> None:
        """Begin with the generation's first step."""
        self._prepares = self.next = 0

    def prepares(self, step: int) -> int:
        """Note that this step of the job may stand next; return its number for the machine."""
        self._prepares = step
        return self.next

    def commits(self, step: int) -> int:
        """Note that the machine's step of this number stands; return how many of the job's do."""
        self.next = step + 1
        return self._prepares + 1
