"""Profiles from traces of PyTorch's profiler: a real one of ResNet-50, against sums of its own kernels, and small ones by hand."""

import copy
import gzip
import json

import click.testing
import msgspec
import pytest

from hocket.artefacts import files
from hocket.artefacts.profile import Profile
from hocket.cli.main import hocket
from hocket.errors import ArtefactError
from hocket.tools.formats import kineto_buckets
from tests.formats.subjects import small_step
from tests.support.dlc_files import VECTORS

BUCKETS = [2_049_000, 7_875_584, 6_563_840, 6_637_568, 2_431_040]
US = 1e-6


@pytest.fixture(scope="module")
def tree():
    return json.loads(gzip.decompress((VECTORS / "kineto-resnet50-ddp-2xa100.json.gz").read_bytes()))


@pytest.fixture(scope="module")
def resnet():
    return kineto_buckets.profiled(VECTORS / "kineto-resnet50-ddp-2xa100.json.gz")


def kernels(tree, *, nccl):
    found = [each for each in tree["traceEvents"] if each.get("ph") == "X" and each.get("cat") == "kernel"]
    return [each for each in found if each["name"].startswith("nccl") == nccl]


def test_buckets_of_a_real_trace_have_all_of_its_kernels(resnet, tree):
    """Coverage rates, and what is planned by them, would be of a part of the step."""
    assert [each.elements for each in resnet.buckets] == BUCKETS
    assert [each.bytes for each in resnet.buckets] == [4 * each for each in BUCKETS]
    computed_s = sum(each["dur"] for each in kernels(tree, nccl=False)) * US / 3
    own_s = sum(each.forward_s + each.backward_s for each in resnet.buckets) + resnet.optimizer_s
    assert own_s == pytest.approx(computed_s, rel=0.02)
    collective_s = sum(each["dur"] for each in kernels(tree, nccl=True)) * US / 3
    assert sum(each.collective_s for each in resnet.buckets) == pytest.approx(collective_s, rel=0.02)
    # Backward of a convolution is two convolutions.
    for each in resnet.buckets[1:]:
        assert 1.5 < each.backward_s / each.forward_s < 2.5


def test_one_ranks_transfers_are_upper_bounds(resnet, tree):
    """Waiting for a straggler would be planned for as a slow network."""
    assert all(each.upper_bound for each in resnet.buckets)
    durations = [each for each in kernels(tree, nccl=True) if each["args"]["In msg nelems"] == BUCKETS[0]]
    assert len(durations) == 3
    assert resnet.buckets[0].transfer_s == pytest.approx(min(each["dur"] for each in durations) * US)
    assert any("1 ranks' files are not there" in sentence for sentence in resnet.remarks)


def test_all_ranks_transfers_are_known(tmp_path, tree):
    """With every rank's file, an upper bound would be given where the transfer is known."""
    other = copy.deepcopy(tree)
    other["distributedInfo"]["rank"] = 1
    for each in kernels(other, nccl=True):
        each["ts"] += 500
        each["dur"] -= 500 if each["args"]["Collective name"] == "allreduce" else 0
    for number, each in enumerate((tree, other)):
        (tmp_path / f"{number}.json").write_text(json.dumps(each))
    found = kineto_buckets.profiled(tmp_path)
    assert not any(each.upper_bound for each in found.buckets)
    durations = [each for each in kernels(tree, nccl=True) if each["args"]["In msg nelems"] == BUCKETS[1]]
    middle = sorted(each["dur"] for each in durations)[1]
    assert found.buckets[1].transfer_s == pytest.approx((middle - 500) * US)
    assert found.buckets[1].forward_s == pytest.approx(
        kineto_buckets.profiled(tmp_path / "0.json").buckets[1].forward_s
    )


def test_the_profile_has_the_times_of_the_clock(resnet):
    """Planners would take gradients to be ready before or after they are."""
    profile = resnet.profile
    assert [each.elements for each in profile.gradients] == BUCKETS[::-1]
    ready_s = [each.ready_s for each in reversed(profile.gradients)]
    needed_s = [each.needed_s for each in profile.gradients]
    assert ready_s == sorted(ready_s)
    assert needed_s == sorted(needed_s)
    assert (needed_s[0], profile.world, profile.steps) == (0.0, 2, 3)
    assert (
        profile.forward_s
        < ready_s[0]
        < ready_s[-1]
        == pytest.approx(profile.forward_s + profile.backward_s, rel=0.02)
    )
    # The steps last 220 to 225 ms by the trace's own annotations; what is left out is waiting for collectives.
    assert 0.18 < profile.step_s < 0.225


def test_a_step_by_hand(tmp_path):
    """A kernel would be in the wrong bucket, or in the wrong half of the step."""
    path = tmp_path / "x.json"
    path.write_bytes(small_step())
    found = kineto_buckets.profiled(path)
    (bucket,) = found.buckets
    assert (bucket.elements, bucket.dtype, bucket.bytes) == (100, "f32", 400)
    times = (bucket.forward_s, bucket.backward_s, bucket.collective_s, found.optimizer_s, found.other_s)
    assert times == pytest.approx((7 * US, 15 * US, 20 * US, 4 * US, 0.0))
    (gradient,) = found.profile.gradients
    # Forward's kernel runs from 10 to 17, backward's to 37; the optimizer's begins at 66: 29 of the 90 are waiting.
    assert (gradient.needed_s, gradient.ready_s) == pytest.approx((0.0, 27 * US))
    assert (found.profile.forward_s, found.profile.backward_s) == pytest.approx((7 * US, 20 * US))
    assert found.profile.step_s == pytest.approx((90 - 29) * US)


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ("ProfilerStep", "has no steps"),
        ("autograd::", "has no backward functions"),
        ("nccl", "no backward launches a collective"),
    ],
)
def test_what_buckets_are_found_by_is_named_where_it_lacks(tmp_path, lacking, said):
    """Profiles would be empty, or of something else."""
    step = json.loads(small_step())
    step["traceEvents"] = [each for each in step["traceEvents"] if lacking not in each["name"]]
    path = tmp_path / "x.json"
    path.write_text(json.dumps(step))
    with pytest.raises(ArtefactError, match=said):
        kineto_buckets.profiled(path)


def test_steps_with_other_buckets_are_refused(tmp_path):
    """DDP's first step has other buckets than those after it: means over both would be of neither."""
    step = json.loads(small_step())
    later = copy.deepcopy(step["traceEvents"])
    for each in later:
        each["ts"] += 100
        each["args"] = {
            name: value + 10 if name in ("External id", "Sequence number") else value
            for name, value in each["args"].items()
        }
        if "In msg nelems" in each["args"]:
            each["args"]["In msg nelems"] = 50
    step["traceEvents"] += later
    path = tmp_path / "x.json"
    path.write_text(json.dumps(step))
    with pytest.raises(ArtefactError, match="not all steps have the same buckets"):
        kineto_buckets.profiled(path)


def test_the_command_writes_a_profile(tmp_path):
    """A job that runs elsewhere could not be planned for."""
    run = click.testing.CliRunner().invoke
    out = tmp_path / "profile.json"
    trace = str(VECTORS / "kineto-resnet50-ddp-2xa100.json.gz")
    result = run(hocket, ["profile", "--from-trace", trace, "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert "≤ 2.52 ms" in result.output
    assert len(files.read(out, Profile).gradients) == 5
    result = run(hocket, ["profile", "--from-trace", trace, "-o", str(out), "--json"])
    assert msgspec.json.decode(result.stdout)["buckets"][0]["upper_bound"] is True
    for words in (["--from-trace", trace, "train.py"], ["--from-trace", trace, "-n", "2"], []):
        refused = run(hocket, ["profile", *words])
        assert refused.exit_code != 0
