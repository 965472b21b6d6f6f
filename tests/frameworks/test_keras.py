"""Keras 3 on its backends: `make test-frameworks`, in an environment of its own, with real ranks."""

import pytest

from tests.frameworks import jobs

CASES = "tests.frameworks.keras_rank"
BACKENDS = ["tensorflow", "jax", "torch"]
TRAININGS = {name: (f"{CASES}:train", name) for name in ("sgd", "adam")}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", [2, 4])
def test_fit_trains_what_one_process_would(world, backend, tmp_path):
    """The model would be another one, replicas would drift apart, or each rank would log its own losses."""
    calls = TRAININGS if world == 2 else {"adam": TRAININGS["adam"]}
    found = jobs.by_name(calls, world, tmp_path, environment={"KERAS_BACKEND": backend})
    for name, ranks in found.items():
        digest, distance, losses, expected = ranks[0]
        assert all(each[0] == digest and each[2] == losses for each in ranks), f"{name}: replicas differ"
        assert distance <= 1e-5, name
        assert losses == pytest.approx(expected, rel=1e-4), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_mistakes_are_answered_with_a_sentence(backend, tmp_path):
    """Ranks would train alone without a word, or fail somewhere inside of Keras."""
    environment = {"KERAS_BACKEND": backend}
    ranks = jobs.by_name({"refused": (f"{CASES}:refused",)}, 2, tmp_path, environment=environment)["refused"]
    assert ranks[0] == ranks[1], "training goes on"
    expected = {
        "not compiled": "the model has no optimizer",
        "not built": "the model has no weights yet",
        "the other way": {
            "tensorflow": "the model has jit_compile=True",
            "jax": "the model is not compiled by XLA",
            "torch": "the model has jit_compile=True",
        }[backend],
        "compiled again": "another optimizer would train each rank alone",
    }
    said, _ = ranks[0]
    assert set(said) == set(expected)
    for name, part in expected.items():
        assert said[name].startswith("UsageError: "), said[name]
        assert part in said[name], said[name]
        assert "\nhint: " in said[name], said[name]


def test_what_needs_an_optimizer_of_pytorch_is_refused(tmp_path):
    """Gradients would be applied a step late at Keras' full learning rate, or by nobody."""
    environment = {"KERAS_BACKEND": "torch"}
    said = jobs.by_name({"late": (f"{CASES}:late",)}, 1, tmp_path, environment=environment)["late"][0]
    assert said.startswith(
        "UsageError: merged or late gradients: the optimizer of a model of Keras neither waits"
    )
    assert "\nhint: " in said


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lost_rank_is_named(backend, tmp_path):
    """The others would wait in `fit`, and not know for whom."""
    ended = jobs.run([(f"{CASES}:lost",)], 3, tmp_path, environment={"KERAS_BACKEND": backend})
    assert ended.outcome.code != 0
    for rank in (0, 2):
        assert ended.returned[0][rank] is not None, ended.output
        assert "rank 1" in ended.returned[0][rank]
