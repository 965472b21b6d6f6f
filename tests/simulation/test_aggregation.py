"""Sums made by the switch, against what a pipeline through a pool of slots takes."""

import json
import math

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hocket._native import BUCKET_S
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import AllReduce
from hocket.artefacts.profile import Gradient, Profile
from hocket.cli.main import hocket
from hocket.errors import UsageError
from hocket.planning.buckets import buckets, plan_of
from hocket.tools.simulation import aggregation, flow
from hocket.tools.simulation.aggregation import Switch
from hocket.tools.simulation.conditions import Conditions
from hocket.tools.simulation.networks import leaf_spine, star

BYTES_PER_S = 1e9 / 8


def job(world, elements):
    """A plan of one all-reduce for each count of elements, all ready at once."""
    gradients = tuple(
        Gradient(name=f"g{at}", shape=(count,), dtype="f32", ready_s=0.0, needed_s=0.0)
        for at, count in enumerate(elements)
    )
    profile = Profile(
        model="m",
        world=1,
        steps=0,
        forward_s=0.0,
        backward_s=0.0,
        optimizer_s=0.0,
        step_s=0.0,
        gradients=gradients,
    )
    made = buckets([[each] for each in gradients], AllReduce(algorithm="ring"), range(world))
    return plan_of(made, world, label=""), profile


def closed_form_s(pieces, slots, slot_s, latency_s):
    """`pieces` of `slot_s` on a link, `latency_s` to the switch and as much back, which passes on whole pieces."""
    cycle_s = 2 * (slot_s + latency_s)
    if slots * slot_s >= cycle_s:
        return (pieces + 1) * slot_s + 2 * latency_s
    rounds = math.ceil(pieces / slots) - 1
    return rounds * cycle_s + (pieces - rounds * slots + 1) * slot_s + 2 * latency_s


@given(st.integers(2, 9), st.integers(1, 200), st.integers(1, 70), st.sampled_from([0.0, 5e-6, 100e-6, 1e-3]))
def test_a_pool_of_slots_takes_what_its_pipeline_does(world, pieces, slots, latency_s):
    """A switch with too few slots would look as fast as one with enough, or be slow for no reason."""
    slot_bytes = 1024
    plan, profile = job(world, [pieces * slot_bytes // 4])
    network = star(world, bit_per_s=1e9, latency_s=2 * latency_s)
    found = aggregation.predict(plan, network, profile, Switch(slots=slots, slot_bytes=slot_bytes))
    expected_s = closed_form_s(pieces, slots, slot_bytes / BYTES_PER_S, latency_s)
    assert found.step_s - BUCKET_S == pytest.approx(expected_s, rel=1e-6, abs=5e-9)
    assert found.messages == 2 * pieces * world


def test_every_gradient_crosses_each_link_once_and_the_ring_takes_almost_twice_as_long():
    """Nobody would see what a switch that sums is for."""
    plan, profile = job(8, [1_000_000, 500_000])
    network = star(8, bit_per_s=1e9)
    summed = aggregation.predict(plan, network, profile, Switch(slots=512, slot_bytes=16_384))
    ring = flow.predict(plan, network, profile).outcome
    assert ring.step_s / summed.step_s == pytest.approx(2 * 7 / 8, rel=0.05)
    assert {load.bytes for load in summed.loads} == {6_000_000}
    assert summed.buckets[0].done_s < summed.buckets[1].done_s


def test_the_slowest_worker_holds_the_pool():
    """A straggler would not delay the others, whose slots wait for its pieces."""
    plan, profile = job(4, [100_000])
    network = star(4, bit_per_s=1e9)
    switch = Switch(slots=8, slot_bytes=4096)
    even = aggregation.predict(plan, network, profile, switch)
    late = aggregation.predict(plan, network, profile, switch, conditions=Conditions(slow=((2, 51.0),)))
    assert late.step_s - even.step_s == pytest.approx(50 * BUCKET_S, rel=1e-3)


def test_what_a_switch_cannot_sum_is_refused():
    """A prediction would be given for a network that has no such switch."""
    plan, profile = job(4, [1000])
    switch = Switch(slots=8, slot_bytes=64)
    with pytest.raises(UsageError, match="all at it"):
        aggregation.predict(plan, leaf_spine(2, 2, bit_per_s=1e9), profile, switch)
    with pytest.raises(UsageError, match="one rank each"):
        aggregation.predict(plan, star(2, bit_per_s=1e9, ranks_per_host=2), profile, switch)
    with pytest.raises(UsageError, match="0 slots"):
        aggregation.predict(plan, star(4, bit_per_s=1e9), profile, Switch(slots=0, slot_bytes=64))
    with pytest.raises(UsageError, match="larger slots"):
        aggregation.predict(job(4, [10**9])[0], star(4, bit_per_s=1e9), job(4, [10**9])[1], switch)


def test_the_verb_asks_the_switch(tmp_path):
    """The option would be taken and change nothing."""
    files.write(
        tmp_path / "cluster.toml",
        Cluster(hosts=tuple(Host(name=each, bandwidth_bit_per_s=1e9) for each in "abcd")),
    )
    plan, profile = job(4, [1_000_000])
    files.write(tmp_path / "plan.json", plan)
    files.write(tmp_path / "profile.json", profile)
    argv = [
        "simulate",
        "plan",
        str(tmp_path / "plan.json"),
        "--cluster",
        str(tmp_path / "cluster.toml"),
        "--json",
    ]
    argv += ["--profile", str(tmp_path / "profile.json")]
    steps = []
    for more in ([], ["--aggregate", "512:16384"], ["--aggregate", "2:1024"]):
        done = CliRunner().invoke(hocket, [*argv, *more], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        steps.append(json.loads(done.stdout)["step_s"])
    assert steps[1] < steps[0] < steps[2]
    wrong = CliRunner().invoke(hocket, [*argv, "--aggregate", "many"])
    assert "is not SLOTS:BYTES" in wrong.output
