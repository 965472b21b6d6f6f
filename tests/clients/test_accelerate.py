"""What scripts for Accelerate also do, right and wrong, with `hk.accelerate`."""

import pytest

from tests.clients.jobs import command, learned
from tests.clients.shared import WORLD
from tests.clients.test_distribute import assert_close


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("more")
    argv = command("accelerate", "accelerate_more.py", WORLD, folder / "job")
    return learned({"job": argv}, WORLD, folder)["job"]


@pytest.mark.parametrize("order", ["model first", "optimizer first"])
def test_a_model_trains_once_it_has_its_optimizer(ranks, order):
    """Broken: a model that is prepared by itself would be trained by each rank alone."""
    for each in ranks:
        assert each[order]["world"] == WORLD
        (said,) = each[order]["said"]
        assert "each rank would train its own" in said


def test_ranks_with_unequal_batches_train(ranks):
    """Broken: the rank with more batches would wait for the other one; or ranks would go apart."""
    one, other = (each["unequal"] for each in ranks)
    assert (one["batches"], other["batches"]) == (2, 1)
    assert [one["even"], other["even"]] == [True, True]
    assert_close(one["state"], other["state"], 0.0)


def test_two_models_train(ranks):
    """Broken: the second model would be left alone."""
    one, other = (each["two models"] for each in ranks)
    assert one["worlds"] == other["worlds"] == [WORLD, WORLD]
    for mine, theirs in zip(one["states"], other["states"], strict=True):
        assert_close(mine, theirs, 0.0)


def test_refuses_what_it_cannot_do(ranks):
    """Broken: a model would be reduced twice, or by nobody."""
    expected = {
        "wrapped": r"hint: .*hk\.accelerate\(Accelerator\(\)\)",
        "twice": "has been given to it before",
        "no accelerator": "Linear is no Accelerator",
        "a hook": 'comm_hook=fp16 for DistributedDataParallel.*\n.*promise="rounded"',
        "prepared": "has prepared Sequential already",
        "sharded": "is set up for FSDP",
        "elastic": "HOCKET_COORDINATOR, but the ranks of Accelerate stay as they are",
        "servers": "parameter servers, but all ranks of Accelerate train",
        "a typo": "buffers='never': known are",
    }
    for each in ranks:
        assert each["refused"].keys() == expected.keys()
        for name, pattern in expected.items():
            with pytest.raises(AssertionError, match=pattern):
                raise AssertionError(each["refused"][name])
