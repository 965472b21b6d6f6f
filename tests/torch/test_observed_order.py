"""The order in which backward makes gradients is seen in the first step, and decides on buckets from then on."""

import pytest

from hocket.artefacts import files
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce
from hocket.artefacts.trace import Kind, read
from hocket.planning.buckets import buckets, plan_of
from hocket.settings import Settings
from tests.support import ranks

LAST, FIRST = "layers.0", "first"


SCRIPTS = "tests.torch.order_scripts"


def run(script, tmp_path, *arguments, settings):
    ended = ranks.run(f"{SCRIPTS}:{script}", 2, tmp_path, *arguments, settings=settings)
    assert ended.outcome.code == 0, ended.output
    return ended.returned


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    calls = {
        "plan": (f"{SCRIPTS}:backwards", "plan"),
        "policy": (f"{SCRIPTS}:backwards", "policy"),
        "other_ways": (f"{SCRIPTS}:other_ways",),
        "forwards": (f"{SCRIPTS}:forwards",),
    }
    settings = Settings(timeout_s=30, start_timeout_s=30)
    return ranks.by_name(calls, 2, tmp_path_factory.mktemp("trained"), settings=settings)


def test_a_model_that_registers_its_last_layer_first_gets_its_buckets(tmp_path, trained):
    """The first bucket would wait for the end of backward; nothing would overlap."""
    trace = tmp_path / "trace"
    settings = Settings(timeout_s=30, start_timeout_s=30, trace=str(trace))
    (epoch, before, after, numbers, _), other = run("backwards", tmp_path, "plan", settings=settings)
    assert other[:4] == [epoch, before, after, numbers]
    assert epoch == 1
    assert f"{FIRST}.weight" in before[0]
    assert f"{LAST}.weight" in after[0]
    assert f"{FIRST}.weight" in after[-1]
    _read_back(trace, after)
    assert trained["plan"][0][3] == numbers, "the order depends on time"


def _read_back(trace, buckets):
    """Reports and replays would take the buckets of the first step for those of all."""
    run = read(trace).run
    assert [sorted(bucket.variables) for bucket in run.plan.buckets] == buckets
    current = {each.program: each.bucket for each in run.programs if each.bucket is not None}
    assert sorted(current.values()) == list(range(len(buckets)))
    assert all("epoch 1" in each.label for each in run.programs if each.bucket is not None)
    records = read(trace).records(0)
    launched = records[(records["kind"] == Kind.INSTANCE)]["program"]
    assert set(current) <= set(launched.tolist())
    assert len(run.programs) > len(current)


def test_policies_are_told_what_was_seen(trained):
    """`priority=grad.forward_order` would send the last layer first."""
    for epoch, _, _, _, seen in trained["policy"]:
        assert epoch == 1
        backward = sorted(seen, key=lambda name: seen[name][0])
        forward = sorted(seen, key=lambda name: seen[name][1])
        assert {*backward[:2]} == {f"{LAST}.weight", f"{LAST}.bias"}
        assert {*forward[:2]} == {f"{FIRST}.weight", f"{FIRST}.bias"}


def test_rank_0_decides(trained):
    """Ranks whose backward takes other ways would have other buckets."""
    assert trained["other_ways"] == [["1.weight", "3.weight", "0.weight", "2.weight"]] * 2


def test_nothing_begins_where_buckets_stay(trained):
    """Every job would load its programs twice."""
    assert trained["forwards"] == [0, 0]


def test_a_plan_that_was_given_stays(tmp_path):
    """A plan that somebody chose and measured would be another one after the first step."""
    sizes = {FIRST: 512 * 8, LAST: 512 * 4, **{f"layers.{at}": 512 * 512 for at in range(1, 7)}}
    names = [(f"{layer}.{part}", layer) for layer in sizes for part in ("weight", "bias")]
    elements = {
        name: sizes[layer] if name.endswith("weight") else 4 if layer == LAST else 512
        for name, layer in names
    }
    all_of_it = [Gradient(name, (count,), "f32") for name, count in elements.items()]
    one = buckets([all_of_it], AllReduce(algorithm="in_place"), range(2))
    files.write(tmp_path / "plan.json", plan_of(one, 2, label="one"))
    settings = Settings(timeout_s=30, start_timeout_s=30, plan=str(tmp_path / "plan.json"))
    for epoch, before, after, *_ in run("backwards", tmp_path, "plan", settings=settings):
        assert epoch == 0
        assert before == after == [sorted(elements)]
