"""TensorFlow: `make test-frameworks`, in an environment of its own, with real ranks."""

import sys

import pytest

from hocket.settings import Settings
from tests.frameworks import jobs
from tests.support.commands import alone

CASES = "tests.frameworks.tensorflow_rank"
TRAININGS = {
    (model, optimizer, form): (f"{CASES}:train", model, optimizer, form)
    for model, optimizer, form in (
        ("perceptron", "sgd", "eager"),
        ("perceptron", "adam", "function"),
        ("transformer", "sgd", "function"),
        ("transformer", "adam", "tape"),
    )
}


def check_training(found):
    for name, ranks in found.items():
        assert all(rank[0] == ranks[0][0] for rank in ranks), f"{name}: replicas differ"
        assert len(set(ranks[0][0])) == 50, name
        assert ranks[0][1] <= 1e-5, name


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_train_what_one_process_would(world, tmp_path):
    """The model would be another one, or replicas would drift apart."""
    check_training(jobs.by_name(TRAININGS, world, tmp_path))


def test_ranks_on_several_hosts_train_the_same(tmp_path):
    """Sockets would be another path than shared memory."""
    calls = {"sgd": (f"{CASES}:train", "perceptron", "sgd", "function")}
    check_training(jobs.by_name(calls, 3, tmp_path, hosts=["a", "b", "a"]))


def test_every_type_travels_and_the_rest_becomes_rank_0s(tmp_path):
    """Gradients of half precision would be read as others, or ranks would train with other constants."""
    ranks = jobs.by_name({"dtypes": (f"{CASES}:dtypes",)}, 3, tmp_path)["dtypes"]
    assert ranks[0] == ranks[1] == ranks[2]
    (eager, in_function), other = ranks[0]
    assert eager == in_function
    for name in ("float64", "float32", "float16", "bfloat16"):
        assert eager[name] == [name, [3.0] * 15]
    assert eager["scalar"] == ["float32", [3.0]]
    assert other == {"count": [0, 1, 2], "frozen": 1.0, "flag": True, "none": []}


def test_several_means_in_one_execution(tmp_path):
    """Ranks would add up gradients of different steps."""
    ranks = jobs.by_name({"loop": (f"{CASES}:in_a_loop", 300)}, 2, tmp_path)["loop"]
    assert ranks == [[0, [0.5] * 3 + [1.0] * 3]] * 2


def test_two_threads_are_enough_for_gradients_in_any_order(tmp_path):
    """Ranks that wait for different buckets would take all threads, and wait for one another for ever."""
    found = jobs.by_name({"few": (f"{CASES}:few_threads", 500)}, 2, tmp_path, hosts=["a", "b"])["few"]
    assert found == [[], []]


@pytest.mark.parametrize(
    ("how", "form"), [("killed", "function"), ("raised", "function"), ("killed", "eager")]
)
def test_a_lost_rank_is_named(how, form, tmp_path):
    """The others would wait, not know for whom, or crash in TensorFlow's threads."""
    ended = jobs.run([(f"{CASES}:lost", how, form)], 3, tmp_path)
    assert ended.outcome.code != 0
    for rank in (0, 2):
        assert ended.returned[0][rank] is not None, ended.output
        assert len(ended.returned[0][rank]) == 2, "the first call, and the one after it"
        for late_s, kind, said in ended.returned[0][rank]:
            assert late_s < 1.0, said
            assert kind == "AbortedError", said
            assert "rank 1" in said, said


def test_a_rank_that_does_not_come_is_named(tmp_path):
    """Nobody would know for whom the job waits, and it would wait for ever."""
    settings = Settings(timeout_s=2, start_timeout_s=60)
    ended = jobs.run([(f"{CASES}:late",)], 2, tmp_path, settings=settings)
    said = ended.returned[0][0]
    assert said is not None, ended.output
    assert said.startswith("DeadlineExceededError: "), said
    assert "rank 1" in said, said


def test_mistakes_are_answered_with_a_sentence(tmp_path):
    """A traceback of TensorFlow's would not say what to do, or a rank would hang."""
    ranks = jobs.by_name({"refused": (f"{CASES}:refused",)}, 2, tmp_path)["refused"]
    assert ranks[0] == ranks[1]
    said, sums = ranks[0]
    expected = {
        "nothing is distributed": "nothing is distributed\nhint: hk.distribute(variables)",
        "complex": "is complex (complex64)",
        "nothing": "nothing to distribute",
        "text": "is of string, which Hocket cannot copy",
        "tensor": "is no variable",
        "shape": "has the shape <unknown>",
        "in a graph": "reads and writes variables, which a graph cannot",
        "twice": "`a` is distributed twice",
        "strategy": "under a tf.distribute.Strategy",
        "too few": "hk.mean got 1 gradients, and 2 variables train together",
        "another order": "the gradient of `a` is (2, 2) of float32, and the variable that was distributed (3,)",
        "another type": "the gradient of `b` is (2, 2) of float64",
        "none": "there is no gradient of `b`",
        "another variable": "`other` is not among the 2 variables that train together",
        "a part": "that of `b` is missing",
        "differentiated": "hk.mean cannot be differentiated",
        "compiled": "hk.mean is in a function with jit_compile=True",
    }
    assert set(said) == set(expected)
    for name, part in expected.items():
        kind = "UnimplementedError: " if name == "compiled" else "UsageError: "
        assert said[name].startswith(kind), said[name]
        assert part in said[name], said[name]
    assert sums == [4.5, 6.0], "training goes on"


def test_other_variables_take_the_place_of_the_first(tmp_path):
    """What was compiled for the first would send its gradients as the second's."""
    ranks = jobs.by_name({"anew": (f"{CASES}:distributed_anew",)}, 2, tmp_path)["anew"]
    for first, said, second in ranks:
        assert (first, second) == ([[1.5] * 3], [2.5] * 4)
        assert "the model of this function is not distributed any more\nhint: " in said


def test_other_shapes_on_other_ranks_end_the_job(tmp_path):
    """Ranks would add up gradients of different variables."""
    ended = jobs.run([(f"{CASES}:differ",)], 2, tmp_path)
    assert ended.outcome.code != 0
    said = "the models of rank 0 and rank 1 differ: `w` is [3, 4] of f32 on rank 0 and [3, 5]"
    assert said in ended.output, ended.output


def test_several_devices_are_refused(tmp_path):
    """Each would have gradients of its own, of which one would travel."""
    ended = jobs.run([(f"{CASES}:several_devices",)], 1, tmp_path)
    assert ended.outcome.code != 0
    assert "UsageError: this process has 2 devices of TensorFlow, and a rank has one" in ended.output


@pytest.mark.parametrize("policy", ["int8", "partial_f16", "power_sgd", "top_k", "two_level"])
def test_policies_do_what_they_do_under_pytorch(policy, tmp_path):
    """A policy that was tried with one framework would do something else with the other."""
    ours, theirs = (
        jobs.by_name({"policy": (call, policy)}, 4, tmp_path, hosts=["a", "a", "b", "b"])["policy"]
        for call in (f"{CASES}:by_policy", "tests.frameworks.policies:by_policy_of_torch")
    )
    assert all(each == ours[0] for each in ours), "replicas differ"
    assert len(set(ours[0])) == 5
    assert ours == theirs


def test_a_checkpoint_goes_on_with_equal_bits(tmp_path):
    """What a policy owes to later steps would be lost with each restart, and nobody would know."""
    whole, resumed, forgot = (
        jobs.by_name({"goes on": (f"{CASES}:goes_on", "top_k", str(tmp_path), *how)}, 2, tmp_path)["goes on"]
        for how in ((0,), (6,), (6, False))
    )
    for ranks in (whole, resumed, forgot):
        assert ranks[0] == ranks[1], "replicas differ"
    assert resumed[0] == whole[0][6:]
    assert forgot[0][0] != whole[0][6], "the policy keeps nothing that could be lost"


def test_a_script_without_ranks_trains_alone(tmp_path):
    """A script that is run without the launcher would not work."""
    script = (
        "import tensorflow as tf, hocket.tensorflow as hk\n"
        "w = hk.distribute([tf.Variable(tf.ones(3))])\n"
        "with tf.GradientTape() as tape:\n    loss = tf.reduce_sum(w[0] ** 2)\n"
        "print(hk.mean(tape.gradient(loss, w))[0].numpy().tolist())\n"
    )
    ran = alone([sys.executable, "-c", script], cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "[2.0, 2.0, 2.0]\n"), ran.stderr


def test_a_tensorflow_that_is_not_known_is_refused(tmp_path):
    """Kernels would be called as another version calls them."""
    script = (
        "import tensorflow as tf, hocket.tensorflow as hk\n"
        "tf.__version__ = '3.0.0'\n"
        "hk.distribute([tf.Variable(tf.ones(3))])\n"
    )
    ran = alone([sys.executable, "-c", script], cwd=tmp_path)
    assert ran.returncode == 1
    assert "UsageError: TensorFlow 3.0.0 is newer than this Hocket\nhint: TensorFlow 2.21" in ran.stderr, (
        ran.stderr
    )


def test_without_tensorflow_there_is_nothing_to_register(tmp_path):
    """The process would call functions that are not there."""
    ran = alone([sys.executable, "-c", "from hocket import _native\n_native.tensorflow_register('2.21.0')"])
    assert ran.returncode == 1
    assert "TensorFlow 2.21.0 has not loaded `libtensorflow_framework.so.2`" in ran.stderr, ran.stderr
