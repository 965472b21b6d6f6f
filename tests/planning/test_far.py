"""Plans for hosts that are far from each other: the simulator, which no rule of the planner knows, agrees with the choice."""

import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.profile import Gradient, Profile
from hocket.planning.search import candidates
from hocket.tools.simulation.fidelity import predict

WORLD, ONE_WAY_S = 8, 25e-3


def hosts(latency_s):
    own_s = latency_s / 2  # of each end
    each = (Host(name=f"h{at}", bandwidth_bit_per_s=1e9, latency_s=own_s) for at in range(WORLD))
    return Cluster(hosts=tuple(each))


def gradient(size_bytes):
    one = Gradient(name="all", shape=(size_bytes // 4,), dtype="f32", ready_s=0.0, needed_s=0.0)
    times = dict.fromkeys(("forward_s", "backward_s", "optimizer_s", "step_s"), 0.0)
    return Profile(model="one", world=WORLD, steps=1, gradients=(one,), **times)


@pytest.mark.parametrize("size_bytes", [1 << 16, 1 << 20])
def test_few_rounds_where_rounds_are_long(size_bytes):
    """Each step between sites would wait for 14 rounds of a ring where 6 do."""
    cluster, profile = hosts(ONE_WAY_S), gradient(size_bytes)
    found = candidates(cluster, profile, WORLD)
    steps_s = {each.label: predict(each, cluster, profile).step_s for each in found}
    best = min(found, key=lambda each: each.predicted_step_s)
    assert steps_s[best.label] <= 1.05 * min(steps_s.values())
    ring_s = next(step_s for label, step_s in steps_s.items() if "ring" in label)
    assert 6 * ONE_WAY_S < steps_s[best.label] < 0.7 * ring_s


def test_near_hosts_keep_what_was_measured_for_them():
    """Exchanges of all with all, which lose packets where links are short and full, would be planned on predictions alone."""
    near = candidates(hosts(1e-4), gradient(1 << 16), WORLD)
    assert not any(name in each.label for each in near for name in ("direct", "halving"))
