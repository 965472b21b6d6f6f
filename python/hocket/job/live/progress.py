"""What a rank does now and how long its steps take, as the thread that trains notes it: a look at the clock five times a step.

One thread writes, the publisher's reads. Each value is one number or one tuple, so that no lock is needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal

from hocket import _native

RECENT = 32
"""Number of steps over which medians are taken."""

Doing = Literal["starting", "loading", "evaluating", "forward", "backward", "waiting", "training"]
"""`loading`: between the optimizer's step and the next forward, mostly for data. `evaluating`: after a forward without gradients
there. `waiting`: for other ranks or the network. `training`: some of these, where a framework does not tell them apart."""

Durations = tuple[int, int, int]
"""Nanoseconds of a step, and of it those spent waiting and loading."""


class Progress:
    """Progress of one rank. All times are `_native.now_ns()`.

    Attributes:
        steps: number of steps that this process has made.
        doing, since_ns: what the rank does, and since when.
        total: sums over all steps.
        recent: the latest steps.
        tells_waits: True if waits are noted.
        tells_loading: True if forward passes are noted.
        bytes_sent: returns the bytes sent to each rank since the start; None: there is no engine.
        epoch, plan, promise: of the plan in force.
        begun: steps that the job had made before this process began.
        buckets: elements and data type of each bucket that a step exchanges; none: not known.
        calls: collectives of `torch.distributed` under way, by group: what, and since when.
    """

    def __init__(self) -> None:
        """Begin before the first step."""
        self.steps = 0
        self.doing: Doing = "starting"
        self.since_ns = _native.now_ns()
        self.total: Durations = (0, 0, 0)
        self.recent: deque[Durations] = deque(maxlen=RECENT)
        self.tells_waits = self.tells_loading = False
        self.bytes_sent: Callable[[], Mapping[int, int]] | None = None
        self.epoch = 0
        self.plan = self.promise = ""
        self.begun = 0
        self.buckets: tuple[tuple[int, str], ...] = ()
        self.calls: dict[str, tuple[str, int]] = {}
        self._ended_ns = self._waited_ns = self._loaded_ns = 0

    def planned(
        self, *, epoch: int, plan: str, promise: str, buckets: tuple[tuple[int, str], ...] = ()
    ) -> None:
        """Note the plan in force, in words, and its `buckets`."""
        self.epoch, self.plan, self.promise, self.buckets = epoch, plan, promise, buckets

    def joined(self) -> None:
        """Note that a group of `torch.distributed` has met, whose collectives come into `calls` from now on."""
        if self.doing == "starting":
            self._does("training")

    def now(self) -> tuple[Doing, int, str | None]:
        """Return what the rank does, since when, and what it has called and waits for, if that is known."""
        calls = [*self.calls.copy().items()]
        if not calls or self.doing not in ("starting", "training"):
            return self.doing, self.since_ns, None
        group, (what, since_ns) = min(calls, key=lambda each: each[1][1])
        return "waiting", since_ns, f"{what} of group {group}"

    def stepped(self) -> None:
        """Note that the optimizer has stepped: until forward begins, the script gets its next batch."""
        self._does("loading")

    def forward_began(self) -> None:
        """Note that forward begins; further ones of the same step add nothing."""
        if self.doing in ("loading", "evaluating"):
            self._loaded_ns += self._does("forward")
            self.tells_loading = True

    def evaluates(self) -> None:
        """Note that a forward without gradients begins; it and all until the next one with gradients counts as loading."""
        if self.doing == "loading":
            self._loaded_ns += self._does("evaluating")

    def worked_ns(self, now_ns: int) -> int:
        """Return the time since the last step ended, without waits; 0 before the first."""
        if not self._ended_ns:
            return 0
        waits_ns = now_ns - self.since_ns if self.doing == "waiting" else 0
        return max(0, now_ns - self._ended_ns - self._waited_ns - waits_ns)

    def backward_began(self) -> None:
        """Note the first gradient."""
        self._does("backward")

    def wait_began(self) -> None:
        """Note that this rank has done its part, and waits."""
        self._does("waiting")

    def wait_ended(self) -> None:
        """Note the end of a wait."""
        self._waited_ns += self._does("training")
        self.tells_waits = True

    def step_ended(self) -> None:
        """Note that a step is over. The first one, which allocates and connects, is in no duration."""
        now_ns = _native.now_ns()
        if self._ended_ns:
            step = now_ns - self._ended_ns, self._waited_ns, self._loaded_ns
            self.recent.append(step)
            whole, waited, loaded = self.total
            self.total = whole + step[0], waited + step[1], loaded + step[2]
        self._ended_ns, self._waited_ns, self._loaded_ns = now_ns, 0, 0
        self.steps += 1
        if self.doing not in ("loading", "evaluating"):
            self.doing, self.since_ns = "training", now_ns

    def _does(self, what: Doing) -> int:
        """Begin to do that; return the nanoseconds for which something else was done."""
        now_ns = _native.now_ns()
        passed_ns = now_ns - self.since_ns
        self.doing, self.since_ns = what, now_ns
        return passed_ns
