"""A rank of a scenario, with the framework that the scenario names."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from hocket.settings import Settings
from hocket.training.assemble.asked import Given
from hocket.training.assemble.start import elastic_session_of, prepare, session_of
from hocket.training.loop.loop import Loop
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.arenas import arranged
from hocket.training.memory.gradients import gradients_of
from hocket.training.process import joined
from hocket.training.step.companion import Alone
from tests.sessions import model
from tests.sessions.plans import LOCAL, POLICIES, plan_of_scenario
from tests.sessions.scenarios import LEAVER, VICTIM, Iteration, Scenario, course
from tests.training.adapters import ADAPTERS, DEVICES

RANK = int(os.environ.get("HOCKET_RANK", "0"))
PAUSE_S = 0.4
"""Until all ranks have gone as far as they can, or have heard of what one has said."""


class Run:
    """A scenario on this rank: `notes` has all parameters after each iteration, and once more when all gradients are applied."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.notes: list[np.ndarray] = []
        self.members: list[list[int]] = []
        # Rank 0's values count, so the others begin elsewhere.
        self._begin(model.initial(RANK))

    def train(self) -> None:
        """All iterations."""
        for number, at in enumerate(course(self.scenario)):
            self._iterate(number, at)
        self.session.settle()
        self._note()
        self.session.flush()
        self._note()
        if self.scenario.commit == "none":
            self.session.retire()
            self._process.no_longer_close(self.session.close)

    def _begin(self, values: dict[str, np.ndarray]) -> None:
        scenario, settings = self.scenario, Settings.from_environment()
        self._process = process = joined(settings)
        self.adapter = (ADAPTERS | DEVICES)[scenario.framework](values)
        local = LOCAL if scenario.plan == "local" else None
        policy = POLICIES[scenario.plan]() if scenario.plan in POLICIES else None
        framework: Any = self.adapter.framework
        self._gradients = gradients_of(framework.parameters())
        plan = plan_of_scenario(scenario, self._gradients)
        source = prepare(framework, Given(plan, policy, local=local), process=process, settings=settings)
        self.session: Any
        self.counted: Callable[[], Sequence[int]] = lambda: range(scenario.world)
        if process.elastic:
            loop = Loop(process.job)
            self.session, commit = elastic_session_of(
                framework, source, process=process, companion=Alone(), spans=None, loop=loop
            )
            process.begin()
            framework.on_step(loop.stepped)
            self.counted = lambda: commit.standing.counted
        else:
            self.session = session_of(framework, source, process=process, companion=Alone(), spans=None)
        process.also_close(self.session.close)
        self.session.start()

    def _iterate(self, number: int, at: Iteration) -> None:
        if at.before == "epoch":
            self._change_plan()
        if at.before == "lost":
            time.sleep(PAUSE_S)
        for backward in range(at.backwards):
            noted = number > 0 and backward == 0
            accumulates = backward < at.backwards - 1
            with self.session.no_sync() if accumulates else nullcontext():
                self.adapter.backward(
                    *model.batch(RANK, number, backward),
                    spare=model.spare(self.scenario, RANK, number, backward),
                    after_forward=self._note if noted else None,
                )
            if at.before == "lost" and RANK == VICTIM:
                os.kill(os.getpid(), signal.SIGKILL)
        self.adapter.step()
        self.adapter.zero_grad(set_to_none=not at.zeros)
        if at.idle:
            self.adapter.step()
        if at.after == "flush":
            self.session.flush()
        if at.after == "resume":
            self._resume()
        if at.after == "leave":
            if RANK == LEAVER:
                self.session.leave()
            time.sleep(PAUSE_S)

    def _note(self) -> None:
        values = self.adapter.values()
        self.notes.append(np.concatenate([each.ravel() for each in values.values()]))
        self.members.append(list(self.counted()))

    def _change_plan(self) -> None:
        """Another plan follows, which all ranks know from now on."""
        source, now = self.session.source, self.session.source.epochs.current
        other = plan_of_scenario(self.scenario, self._gradients, epoch=1)
        make, plan = source.make, source.plan
        assert other is not None
        next_plan = arranged(other, self._gradients)
        source.plan = lambda epoch: plan(epoch) if epoch.number == now.number else next_plan
        source.make = lambda epoch: (
            make(epoch)
            if epoch.number == now.number
            else bucket_memory.of_plan(next_plan, self._gradients, job=self._process.job)
        )
        source.epochs.learn(now.after({}))

    def _resume(self) -> None:
        """Go on with another model, from what this one's session has saved."""
        before, session = self.adapter, self.session
        saved, values, optimizer = session.saved(), before.values(), before.framework.optimizer_state()
        if self.scenario.plan == "local":
            # What a model's `state_dict` has.
            anchor = before.framework.local.values()
            values = {name: anchor[name].detach().cpu().numpy().T.copy() for name in values}
        self._process.no_longer_close(session.close)
        self._begin(model.initial(7))
        self.adapter.put(values)
        self.adapter.framework.load_optimizer_state(optimizer)
        self.session.restore(saved, strict=True)


def train_all(scenarios: str, directory: str) -> None:
    """Train the scenarios of a file, one after the other, and write what this rank has noted."""
    runs = []
    wanted = [
        Scenario(*each[:-2], tuple(each[-2]), each[-1]) for each in json.loads(Path(scenarios).read_text())
    ]
    if any(scenario.framework.startswith("hostile") for scenario in wanted):
        from tests.torch import hostile

        # PyTorch's backward knows the devices that there are when it first runs.
        hostile.loaded()
    try:
        for scenario in wanted:
            print(f"scenario {scenario.label}", flush=True)  # noqa: T201  # for whoever reads why a job ended
            runs.append(Run(scenario))
            runs[-1].train()
    finally:
        arrays = {f"{at} values": np.array(run.notes) for at, run in enumerate(runs)}
        members = json.dumps([run.members for run in runs])
        np.savez(Path(directory) / f"{RANK}.npz", members=np.array(members), **arrays)
