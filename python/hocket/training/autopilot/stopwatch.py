"""Times of steps, taken by the session as it trains: a look at the clock four times a step, and per gradient in the first steps.

The thread that trains writes them, the pilot's thread takes them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from msgspec import Struct

from hocket import _native
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Schedule
from hocket.artefacts.profile import Gradient as Profiled
from hocket.artefacts.profile import Profile
from hocket.training.guard.gauge import Report, learning_of

WARM_UP_STEPS, STEPS = 2, 5
"""Numbers of steps: the first ones allocate and connect; the profile is made of those after them."""

KEPT = 256
"""Number of steps that are kept until the pilot takes them."""

NS = 1e-9


class Times(Struct, frozen=True):
    """Part of a profile by one rank, medians in seconds. By name of a gradient, `ready_s` since the optimizer's step ended, and for
    gradients that travel as rows the number of rows `touched`; `seen`: the rank's report of how the model learns."""

    optimizer_s: float
    forward_s: float
    backward_s: float
    ready_s: dict[str, float]
    touched: dict[str, float] = {}
    seen: Report | None = None


@dataclass(frozen=True)
class _Step:
    """Clock readings in ns: end of the step before, end of the optimizer's step, begin and end of backward, arrival of each
    gradient; and rows."""

    before: int
    stepped: int
    began: int
    computed: int
    ready: Mapping[str, int]
    touched: Mapping[str, int]


class Stopwatch:
    """Stopwatch of one session. `step` counts the steps that have ended, `epoch` is in force since `epoch_began` of them had;
    `profiles`: times of the running backward's gradients are wanted; `schedule` is in force; `retreated`: the session's sentinel
    has ended merged and late updates."""

    def __init__(self) -> None:
        self.step = 0
        self.epoch = 0
        self.epoch_began = 0
        self.profiles = False
        self.seen: Callable[[], Report] | None = None
        self.schedule = Schedule()
        self.retreated = False
        self._counts = True
        self._steps: deque[tuple[int, float]] = deque(maxlen=KEPT)
        self._profiled: list[_Step] = []
        self._ended_ns = self._stepped_ns = self._began_ns = self._computed_ns = 0
        self._ready: Mapping[str, int] = {}
        self._touched: Mapping[str, int] = {}

    def again(self) -> None:
        self._profiled = []

    def members_changed(self) -> None:
        """Discard the steps until now and the running one, which are no measure for the members that train from now on."""
        self._steps = deque(maxlen=KEPT)
        self.epoch_began = self.step

    def scheduled(self, schedule: Schedule, *, counts: bool, retreated: bool) -> None:
        """Begin a schedule. Not `counts`: it is not the plan's, but one by which its session learns what it must know first."""
        self._steps = deque(maxlen=KEPT)
        self.schedule, self._counts, self.retreated = schedule, counts, retreated

    def stepped(self) -> None:
        """Note that the optimizer has stepped."""
        self._stepped_ns = _native.now_ns()

    def began(self) -> bool:
        """Note the first gradient of a backward. Return whether times of its gradients are wanted."""
        self._began_ns = _native.now_ns()
        self.profiles = len(self._profiled) < STEPS
        return self.profiles

    def computed(self, gradients: Mapping[str, int], touched: Mapping[str, int]) -> None:
        """Note that backward has ended on this rank, which may wait for others now. `gradients`: when each arrived, if that was
        wanted; `touched`: rows of those that travel as rows."""
        self._computed_ns = _native.now_ns()
        self._ready, self._touched = gradients, touched

    def ended(self, epoch: int) -> None:
        """Note that all gradients are reduced; `epoch` is in force from now on."""
        now_ns = _native.now_ns()
        if self._ended_ns:
            # The first step of an epoch loads its programs at the end of the one before: both are no measure.
            if self._counts and self.epoch == epoch and self.step > self.epoch_began:
                self._steps.append((epoch, (now_ns - self._ended_ns) * NS))
            self._profile()
        self.step += 1
        if epoch != self.epoch:
            self.epoch, self.epoch_began = epoch, self.step
        self._ended_ns = now_ns

    def _profile(self) -> None:
        if self.step < WARM_UP_STEPS or not self.profiles or not self._ready:
            return
        stepped_ns = self._stepped_ns if self._stepped_ns > self._ended_ns else self._ended_ns
        self._profiled.append(
            _Step(self._ended_ns, stepped_ns, self._began_ns, self._computed_ns, self._ready, self._touched)
        )

    def take(self) -> list[tuple[int, float]]:
        """Return (epoch, seconds) of the steps that have ended since the last call."""
        steps = self._steps
        return [steps.popleft() for _ in range(len(steps))]

    def times(self) -> Times | None:
        """Return this rank's part of the profile, once it is there."""
        steps = self._profiled[:STEPS]
        if len(steps) < STEPS:
            return None
        names = set.intersection(*(set(step.ready) for step in steps))
        sparse = set.intersection(*(set(step.touched) for step in steps))
        return Times(
            optimizer_s=median(step.stepped - step.before for step in steps) * NS,
            forward_s=median(step.began - step.stepped for step in steps) * NS,
            backward_s=median(step.computed - step.began for step in steps) * NS,
            ready_s={name: median(step.ready[name] - step.stepped for step in steps) * NS for name in names},
            touched={name: median(step.touched[name] for step in steps) for name in sparse},
            seen=None if self.seen is None else self.seen(),
        )


def profile_of(ranks: Sequence[Times], gradients: Iterable[Gradient], model: str, world: int) -> Profile:
    """Return means over ranks. A gradient that no step made counts as ready when backward ends, which is when it is sent;
    `needed_s` is 0, since nothing looks at forward's layers."""
    optimizer_s = fmean(rank.optimizer_s for rank in ranks)
    forward_s = fmean(rank.forward_s for rank in ranks)
    backward_s = fmean(rank.backward_s for rank in ranks)
    end_s = forward_s + backward_s

    def ready_s(name: str) -> float:
        seen = [rank.ready_s[name] for rank in ranks if name in rank.ready_s]
        return min(fmean(seen), end_s) if seen else end_s

    def touched(name: str) -> int | None:
        return max((math.ceil(rank.touched[name]) for rank in ranks if name in rank.touched), default=None)

    reports = [rank.seen for rank in ranks if rank.seen is not None]
    return Profile(
        model=model,
        world=world,
        steps=STEPS,
        forward_s=forward_s,
        backward_s=backward_s,
        optimizer_s=optimizer_s,
        step_s=optimizer_s + end_s,
        gradients=tuple(
            Profiled(
                name=each.name,
                shape=each.shape,
                dtype=each.dtype,
                sparse=each.sparse,
                touched=touched(each.name),
                ready_s=ready_s(each.name),
                needed_s=0.0,
            )
            for each in gradients
        ),
        learning=learning_of(reports, world) if reports else None,
    )
