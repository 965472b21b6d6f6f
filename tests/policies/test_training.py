"""Policies in jobs of real processes: what they train, when epochs begin, and what happens when handlers misbehave."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from hocket.artefacts.trace import Kind, read
from hocket.settings import Settings
from tests.support import ranks, warm
from tests.support.commands import completed

ROOT = Path(__file__).parents[2]


SCRIPTS = "tests.policies.training_scripts"
SETTINGS = Settings(timeout_s=30, start_timeout_s=30)
LOSSLESS = ("partial_f16", "priority", "two_level", "adaptive_fusion")
LOSSY = ("top_k", "int8", "power_sgd")


def run(function, tmp_path, *arguments, world=3, code=0):
    ended = ranks.run(f"{SCRIPTS}:{function}", world, tmp_path, *arguments, settings=SETTINGS)
    assert ended.outcome.code == code, ended.output
    return ended


def close(ours, theirs, relative=1e-5):
    return all(
        np.linalg.norm(np.subtract(a, b)) <= relative * np.linalg.norm(b)
        for a, b in zip(ours, theirs, strict=True)
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """By training: what each rank returned, one model after the other in one job."""
    calls = {
        "plain": ("plain",),
        **{name: ("ready_made", name) for name in (*LOSSLESS, *LOSSY)},
        **{f"restless {kind}": ("restless", kind) for kind in ("barrier", "gates")},
        **{f"remembers {kind}": ("remembers", kind) for kind in ("still", "restless")},
        "by_gloo": ("by_gloo",),
    }
    named = {name: (f"{SCRIPTS}:{function}", *rest) for name, (function, *rest) in calls.items()}
    return ranks.by_name(named, 3, tmp_path_factory.mktemp("trained"), settings=SETTINGS)


@pytest.fixture(scope="module")
def plain(trained):
    """What the empty policy trains; `tests/torch/test_adapter.py` compares that with DDP."""
    return trained["plain"]


@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_policies_train_the_same(trained, plain, name):
    """A policy that only moves gradients otherwise would train another model."""
    assert all(each == trained[name][0] for each in trained[name]), "replicas differ"
    assert close(trained[name][0], plain[0])


@pytest.mark.parametrize("name", LOSSY)
def test_lossy_policies_keep_replicas_equal(trained, name):
    """Ranks would drift apart."""
    assert all(each == trained[name][0] for each in trained[name])


@pytest.mark.parametrize("kind", ["barrier", "gates"])
def test_epochs_change_buckets_and_nothing_else(trained, plain, kind):
    """A new threshold would lose a gradient on the way from one bucket to another."""
    restless = trained[f"restless {kind}"]
    assert len({epoch for _, epoch in restless}) == 1, "ranks are in different epochs"
    assert restless[0][1] >= 2
    assert all(each == restless[0] for each in restless)
    assert close(restless[0][0], plain[0])


def test_state_goes_on_into_a_new_epoch(trained):
    """Error feedback would be lost whenever a threshold changes."""
    still, restless = trained["remembers still"], trained["remembers restless"]
    assert restless[0][1] >= 2
    assert close(restless[0][0], still[0][0], 1e-6)


def test_ranks_may_end_with_gates_closed(tmp_path):
    """The first to leave would fail the others, which still need its part of the last step."""
    run("ends_with_a_step", tmp_path)


def test_a_handler_that_raises_fails_every_rank_with_its_traceback(tmp_path):
    """The job would hang, or end without a reason."""
    ended = run("raises", tmp_path, code=1)
    assert ended.returned == [None] * 3
    assert ended.output.count("ValueError: what the handler said") >= 3
    assert "training_scripts.py" in ended.output


def test_a_handler_that_hangs_delays_no_step(tmp_path):
    """Training would wait for a policy's Python."""
    # Who waited for the handler would be ended by the deadline of tests.
    assert run("hangs", tmp_path).returned == [0] * 3


def test_a_policy_that_depends_on_chance_is_refused(tmp_path):
    """Ranks would run programs that do not match."""
    ended = run("chance", tmp_path, code=1)
    assert "makes other programs on rank" in ended.output


def test_libraries(trained, plain):
    """Gloo would sum other elements than ours."""
    by_gloo = trained["by_gloo"]
    assert close(by_gloo[0], plain[0])
    assert close(by_gloo[1], by_gloo[0], 1e-6)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """By function: what each of two ranks returned."""
    calls = {name: (f"{SCRIPTS}:{name}",) for name in ("statistics", "sparse")}
    return ranks.by_name(calls, 2, tmp_path_factory.mktemp("two"), settings=SETTINGS)


def test_statistics(two):
    """A policy would decide by numbers of nothing."""
    for rank, seen in enumerate(two["statistics"]):
        assert seen["workers"] == [0, 1]
        assert seen["step_time"] > 0.01
        assert 0 <= seen["wait_time"] < seen["step_time"] * 2
        assert seen["gradient_norm"] > 0
        assert seen["mine"] == 10.0 + rank
        assert seen["of rank 1"] == 11.0


def test_a_layer_that_two_reentrant_checkpoints_share_is_refused(tmp_path):
    """Its gradient would be sent before it is complete, and ranks would differ in silence."""
    assert "makes the gradient of `layer." in run("reentrant", tmp_path, world=2, code=1).output


def test_a_model_converted_after_distribute_is_refused(tmp_path):
    """Its gradients would lie outside of buckets."""
    assert "hint: change the model before `distribute`" in run("converted", tmp_path, world=2, code=1).output


def test_sparse_gradients_become_dense_for_policies(two):
    """Rows that ranks have in common, and those that they have not."""
    first, second = two["sparse"]
    assert first == second
    assert first[:6] == [1.5, 1.5, 0, 0, 0, 3.0]


def hocket(*arguments):
    return completed(warm.hocket(*arguments), cwd=ROOT)


def test_verify_command(tmp_path):
    """A policy could only be checked on a cluster."""
    ended = hocket("verify", "two_level", "--world", "16", "--racks", "4", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["world"] == 16
    ended = hocket("verify", "partial_f16", "--world", "3", "--svg", str(tmp_path / "graph.svg"))
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "graph.svg").read_text().startswith("<svg")
    assert "trunk" in hocket("verify", "--help").stdout


def test_verify_command_refuses(tmp_path):
    """Wrong input would end in a traceback."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from hocket import Policy\n\n\nclass Wrong(Policy):\n    def on_buffer_ready(self, cx, buffer):\n        pass\n"
    )
    none = tmp_path / "empty.py"
    none.touch()
    ended = hocket("verify", str(wrong), "--world", "2")
    assert ended.returncode == 1
    assert f"Wrong.on_buffer_ready ({wrong}:5) is refused" in ended.stderr
    assert "Traceback" not in ended.stderr
    for arguments, said in (
        (["nothing"], "there is no policy `nothing`"),
        ([str(tmp_path / "none.py")], "there is no policy file"),
        ([f"{wrong}:Other"], "has no policy Other\nhint: it has Wrong"),
        ([str(none)], f"{none} defines no policy"),
        (["two_level", "--world", "2", "--racks", "3"], "2 ranks in 3 racks"),
        (["two_level", "--after", "bogus"], "has no stage `bogus`"),
    ):
        ended = hocket("verify", *arguments)
        assert ended.returncode == 2, ended.stderr
        assert said in ended.stderr


def test_run_with_a_policy(tmp_path):
    """`--policy` would be ignored."""
    ended = hocket("run", "-n", "2", "--policy", "nothing", "examples/train_digits.py")
    assert ended.returncode != 0
    assert "there is no policy `nothing`" in ended.stderr + ended.stdout


def test_gradients_are_worked_on_while_backward_goes_on(tmp_path):
    """Broken: work on a gradient would wait for its bucket, or be done before the gradient is there, or twice."""
    settings = dataclasses.replace(SETTINGS, trace=str(tmp_path / "trace"), autopilot=False)
    ended = ranks.run(f"{SCRIPTS}:early", 2, tmp_path, settings=settings)
    assert ended.outcome.code == 0, ended.output
    (one, first), (other, second) = ended.returned
    assert one == other
    for mean, *own in zip(one, first, second, strict=True):
        rounded = [np.array(each, np.float32).astype(np.float16).astype(np.float32) for each in own]
        assert np.allclose(mean, (rounded[0] + rounded[1]) / 2, rtol=1e-6, atol=0)
    trace = read(tmp_path / "trace")
    before = 0
    for rank in range(2):
        records = trace.rank_records(rank).records
        asked_ns = {
            (each["program"], each["instance"]): each["ready_ns"]
            for each in records[records["kind"] == Kind.INSTANCE]
        }
        casts = records[records["kind"] == Kind.CAST]
        assert len(casts) % (2 * 4 * 4) == 0, "two casts of each of four gradients in each of four steps"
        before += sum(each["end_ns"] < asked_ns[each["program"], each["instance"]] for each in casts)
    assert before > 0, "all work on gradients waits for the whole bucket"
