"""A job in virtual time that a pilot drives: plans whose steps take what the network lets them, and noise."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from hocket.artefacts.change import Change
from hocket.training.autopilot.pilot import Action, Pilot, Seen
from hocket.training.autopilot.trial import Candidate

LOOK_STEPS, PLAN_STEPS, PREPARE_STEPS, BEGIN_STEPS = 6, 2, 2, 2
"""How many steps of training pass meanwhile."""

Network = Mapping[str, float]
"""By plan: what a step takes, in seconds."""


@dataclass
class World:
    """`network(step)`: as it is then. `predicts(network)`: what the planner says of each plan on a network that it knows."""

    network: Callable[[int], Network]
    first: str
    predicts: Callable[[Network], Network] = dict
    updates: Mapping[str, float] = field(default_factory=dict)
    """By plan: per step; of others, one."""
    noise: float = 0.0
    seed: int = 1
    knows_network: bool = True
    moved: Callable[[int], bool] = lambda _: False
    """Whether connections then carry other rates than when the network was looked at last."""
    candidates: Iterator[str] | None = None
    """Of a search, in turn; None: there is no search."""
    changes: list[Change] = field(default_factory=list)
    in_force: list[str] = field(default_factory=list)
    """By step."""
    looks: list[int] = field(default_factory=list)
    plans: list[int] = field(default_factory=list)

    def run(self, steps: int, meeting: int = 1) -> "World":
        """Trains; all ranks meet every `meeting` steps."""
        draws = np.random.default_rng(self.seed)
        known = self.network(0)
        pilot = Pilot(
            self._candidate(self.first),
            knows_network=self.knows_network,
            say=self.changes.append,
            searches=self.candidates is not None,
        )
        epoch = began = 0
        now, coming, waits, action = self.first, "", 0, None
        took: list[float] = []
        prepared = False
        for step in range(1, steps + 1):
            self.in_force.append(now)
            step_s = self.network(step)[now] * draws.uniform(1 - self.noise, 1 + self.noise)
            if began != step - 1 or epoch == 0:
                took.append(step_s)
            if action is Action.BEGIN and waits == 1:
                now, epoch, began, took, action = coming, epoch + 1, step, [], None
            waits -= 1
            if step % meeting or waits > 0:
                continue
            settled = action is not Action.BEGIN
            done, action = action, None
            seen = Seen(
                step=step,
                epoch=epoch,
                began=began,
                settled=settled,
                step_s=tuple(took),
                prepared=prepared or done is Action.PREPARE,
                moved=self.moved(step),
            )
            asked = pilot.observe(seen)
            prepared, took = seen.prepared, []
            if done is Action.LOOK:
                before, known = known, self.network(step)
                self.looks.append(step)
                asked = pilot.looked(changed=before != known, found="")
            elif done is Action.PLAN:
                self.plans.append(step)
                said = self.predicts(known)
                best = min(said, key=lambda plan: said[plan])
                asked = pilot.planned(self._candidate(best, said[best]), said[pilot.current.key])
            if asked is Action.PROPOSE and self.candidates is not None:
                following = next(self.candidates, None)
                if following is None:
                    asked = pilot.searched("nothing is left")
                else:
                    asked = pilot.proposed(self._candidate(following, self.predicts(known)[following]))
            if asked is not None:
                action = asked
                waits = {
                    Action.LOOK: LOOK_STEPS,
                    Action.PLAN: PLAN_STEPS,
                    Action.PREPARE: PREPARE_STEPS,
                    Action.BEGIN: BEGIN_STEPS,
                }[asked]
                if asked is Action.BEGIN:
                    coming, prepared = pilot.candidate.key, False
        return self

    def _candidate(self, plan: str, predicted_s: float | None = None) -> Candidate:
        return Candidate(plan, plan, predicted_s, self.updates.get(plan, 1.0))

    def what(self) -> list[str]:
        return [each.what for each in self.changes]

    def median_s(self, first: int, last: int) -> float:
        return median(self.network(at)[self.in_force[at]] for at in range(first, last))
