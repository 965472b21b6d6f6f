"""Plans in few bits as proposals of `hocket plan`: on slow networks, under the allowance alone, with the bytes that they say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import AllReduce, Bucket, Part, Plan, Traced
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Gradient, Profile
from hocket.cli.plan import command
from hocket.errors import BuilderError
from hocket.planning.traced import topology_of, traffic
from hocket.tools.simulation.coded import WORTH
from hocket.tools.simulation.networks import from_cluster
from tests.planning.test_delays import profile

WORLD = 8
LAYERS = (1_000_000,) * 4 + (1000,)


def model(compute_s: float) -> Profile:
    of = profile(compute_s, LAYERS)
    gradients = (*of.gradients, Gradient(name="steps", shape=(500,), dtype="i64", ready_s=0.0, needed_s=0.0))
    return msgspec.structs.replace(of, world=WORLD, gradients=gradients)


def planned(folder: Path, bit_per_s: float, *arguments: str, compute_s: float = 0.2) -> Plan:
    hosts = tuple(Host(name=f"h{at}", bandwidth_bit_per_s=bit_per_s) for at in range(WORLD))
    files.write(folder / "cluster.toml", Cluster(hosts=hosts))
    files.write(folder / "profile.json", model(compute_s))
    given = ["--cluster", str(folder / "cluster.toml"), "--profile", str(folder / "profile.json"), "--json"]
    result = CliRunner().invoke(command, [*given, *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    plan = msgspec.json.decode(result.stdout, type=Plan)
    check(plan, model(compute_s).gradients)
    return plan


def codecs(plan: Plan) -> dict[str, str]:
    return {
        name: bucket.route.policy
        for bucket in plan.buckets
        for name in bucket.variables
        if isinstance(bucket.route, Traced)
    }


def times(plan: Plan) -> dict[str, tuple[float, float | None]]:
    """Predicted and simulated times of the candidates with codecs, by codec."""
    return {
        codec: (each.predicted_step_s, each.simulated_step_s)
        for each in plan.evidence.candidates
        for codec in WORTH
        if each.label.startswith(f"coded,codec={codec}")
    }


def test_a_slow_network_gets_few_bits_where_they_are_allowed(tmp_path: Path) -> None:
    """Broken: users on 100 Mbit/s would wait for bits that they do not need, or lose bits that they did not allow to lose."""
    rounded = planned(tmp_path, 1e8, "--promise", "rounded")
    assert not codecs(rounded)
    assert not times(rounded)
    lossy = planned(tmp_path, 1e8, "--promise", "lossy")
    assert codecs(lossy) == {f"layer.{at}": "double_squeeze" for at in range(4)}
    assert lossy.promise == "lossy"
    small = next(bucket for bucket in lossy.buckets if "layer.4" in bucket.variables)
    assert isinstance(small.route, AllReduce)
    found = times(lossy)
    assert list(found) == list(WORTH)
    for predicted_s, simulated_s in found.values():
        assert simulated_s == pytest.approx(predicted_s, rel=0.05)
    assert lossy.predicted_step_s < 0.4 * rounded.predicted_step_s
    # What leaves out more is shown, and can be taken by its name.
    other = next(each.label for each in lossy.evidence.candidates if "codec=top_k" in each.label)
    taken = planned(tmp_path, 1e8, "--promise", "lossy", "--builder", other)
    assert set(codecs(taken).values()) == {"top_k"}


def test_nothing_is_left_out_for_little(tmp_path: Path) -> None:
    """Broken: training would be another one where computation hides what travels."""
    plan = planned(tmp_path, 1e9, "--promise", "lossy", compute_s=5.0)
    assert not codecs(plan)
    assert list(times(plan)) == list(WORTH)
    assert "No codec of few bits" in plan.reason


def test_a_codec_without_the_promise_is_refused(tmp_path: Path) -> None:
    """Broken: a builder's name would be enough to lose bits; or the error would name a line of nobody's file."""
    with pytest.raises(BuilderError, match=r"^builder coded: .* does not allow loss=any\nhint: `--promise"):
        planned(tmp_path, 1e8, "--builder", "coded")


@pytest.mark.parametrize(("bits", "world"), [(8, 4), (8, 8), (4, 8)])
def test_a_codec_both_ways_sends_as_little_for_any_number_of_ranks(bits: int, world: int) -> None:
    """Broken: with more ranks, few bits would be more bytes than a ring's."""
    elements, block = 1 << 20, 128
    bucket = Bucket(
        parts=(Part(variable="w", stop=elements),),
        elements=elements,
        dtype="f32",
        route=Traced(policy="double_squeeze", parameters={"bits": bits, "block": block}),
        order=tuple(range(world)),
        priority=0,
    )
    hosts = tuple(Host(name=f"h{at}", bandwidth_bit_per_s=1e9) for at in range(world))
    counted = traffic(bucket, topology_of(from_cluster(Cluster(hosts=hosts), world)))
    part = elements // world
    own = sum(count for (source, _), count in counted.sent.items() if source == 0)
    assert own == 2 * (world - 1) * (part * bits // 8 + 4 * part // block)
