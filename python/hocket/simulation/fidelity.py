"""One question, two answers: how long a plan's step takes, by closed form or by flows.

Closed form is exact in bytes and approximate in time, and costs microseconds whatever the world; flows run every message. A test
holds the flow engine to SimGrid, an independent one, where that is installed.
"""

from __future__ import annotations

from typing import Literal

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.planners import cost
from hocket.simulation import flow
from hocket.simulation.conditions import Conditions
from hocket.simulation.networks import from_cluster
from hocket.simulation.outcome import LinkLoad, Outcome

Fidelity = Literal["closed-form", "flow"]


def predict(
    plan: Plan,
    cluster: Cluster,
    profile: Profile,
    *,
    fidelity: Fidelity = "flow",
    conditions: Conditions | None = None,
    shaped: bool = False,
) -> Outcome:
    """One step of the plan on the cluster; `shaped`: as the testbed emulates it. Raises as `flow.predict` and `cost.predict` do."""
    if fidelity == "closed-form":
        return _closed_form(plan, cluster, profile)
    network = from_cluster(cluster, plan.world, shaped=shaped)
    return flow.predict(plan, network, profile, conditions=conditions).outcome


def _closed_form(plan: Plan, cluster: Cluster, profile: Profile) -> Outcome:
    prediction = cost.predict(plan, cluster, profile)
    loads = (
        LinkLoad(
            link=load.link, bit_per_s=load.bit_per_s, bytes=load.bytes, busy=load.busy_s / prediction.step_s
        )
        for load in prediction.loads
    )
    return Outcome(
        fidelity="closed-form",
        network=f"{len(cluster.hosts)} hosts of the cluster",
        world=plan.world,
        steps=1,
        step_s=prediction.step_s,
        exposed_s=prediction.exposed_s,
        loads=tuple(loads),
    )
