"""Prediction of a plan's step time at three fidelities: closed form, flows, or SimGrid's flows.

The closed form is exact in bytes and approximate in time, and takes microseconds for any world; flows run every message. SimGrid is
an independent engine, for ideal links, where it is installed.
"""

from __future__ import annotations

from typing import Literal

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.errors import UsageError
from hocket.planning import cost
from hocket.tools.simulation import flow, simgrid, timelines
from hocket.tools.simulation.conditions import Conditions
from hocket.tools.simulation.networks import from_cluster
from hocket.tools.simulation.outcome import LinkLoad, Outcome

Fidelity = Literal["closed-form", "flow", "simgrid"]


def predict(
    plan: Plan,
    cluster: Cluster,
    profile: Profile,
    *,
    fidelity: Fidelity = "flow",
    conditions: Conditions | None = None,
    shaped: bool = False,
) -> Outcome:
    """Predict one step of a plan on a cluster, in virtual time.

    Args:
        plan: the plan to run.
        cluster: the network.
        profile: the model's gradients and when each is ready.
        fidelity: `flow`: every message; `closed-form`: the planner's formula; `simgrid`: every message in SimGrid.
        conditions: stragglers, jitter, failing links and costs; for `flow` only.
        shaped: True if links behave as the testbed emulates them, with the bursts of its token buckets; for `flow` only.

    Raises:
        UsageError: conditions or shaped links with SimGrid, or SimGrid is not installed.
        SimulationError: the step cannot end.
    """
    if fidelity == "closed-form":
        timelines.refuse_turns(plan.schedule, "the closed form is of")
        return _closed_form(plan, cluster, profile)
    network = from_cluster(cluster, plan.world, shaped=shaped)
    if fidelity == "simgrid":
        if shaped or conditions is not None:
            raise UsageError(
                "SimGrid runs one step over ideal links: leave conditions and `shaped` to the flow engine"
            )
        return simgrid.predict(plan, network, profile)
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
