"""Tests that every framework must pass: the six things that it supplies, and how jobs of real ranks begin and end.

A new framework adds a line to `ADAPTERS`.
"""

from __future__ import annotations

import numpy as np
import pytest

from hocket.job.rendezvous import join
from hocket.settings import Settings
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.gradients import gradients_of
from tests.support import ranks
from tests.training import network
from tests.training.adapters import ADAPTERS

CASES = "tests.training.conformance_rank"
pytestmark = pytest.mark.parametrize("kind", list(ADAPTERS), scope="module")


def assert_equal(found, expected, relative=1e-12):
    """Each array by the norm of the difference."""
    assert list(found) == list(expected)
    for name, array in expected.items():
        difference = np.linalg.norm(np.array(found[name]) - array.ravel())
        assert difference <= relative * np.linalg.norm(array), name


def assert_replicas(results):
    """Bit for bit."""
    assert all(each == results[0] for each in results), "replicas differ"


@pytest.fixture
def engine():
    with join(environment={}) as job:
        engine = job.engine()
        yield engine
        engine.close()


@pytest.fixture
def adapter(kind):
    return ADAPTERS[kind](network.values(seed=0))


def loaded(adapter, engine, names):
    """A bucket of these gradients in memory, without a program."""
    gradients = [gradients_of(adapter.framework.parameters())[name] for name in names]
    memory = engine.allocate(sum(each.bytes for each in gradients))
    start, views = 0, []
    for each in gradients:
        views.append(adapter.framework.array(memory, start, each.dtype, each.shape))
        start += each.bytes
    whole = adapter.framework.array(memory, 0, "f64", (start // 8,))
    return LoadedBucket(tuple(gradients), memory, whole, tuple(views), ())


def test_parameters_are_named_in_the_order_of_their_registration(kind, adapter):
    """Ranks would agree on nothing, or a plan would not fit."""
    described = adapter.framework.parameters()
    assert [each.name for each in described] == list(network.values(seed=0))
    assert all((each.kind, each.dtype, each.trained) == ("parameter", "f64", True) for each in described)
    sizes = {each.name: each.elements for each in gradients_of(described).values()}
    assert sizes == {name: value.size for name, value in network.values(seed=0).items()}


@pytest.mark.parametrize(("dtype", "item"), [("f64", np.float64), ("f32", np.float32), ("f16", np.float16)])
def test_arrays_are_the_memory(kind, adapter, engine, dtype, item):
    """What backward writes would not be what leaves, or would be it a step later."""
    memory = engine.allocate(64)
    array = adapter.framework.array(memory, 16, dtype, (2, 3))
    assert tuple(array.shape) == (2, 3)
    assert not array.any(), "registered memory is zero at first"
    values = np.arange(1, 7, dtype=item)
    memoryview(memory)[16 : 16 + values.nbytes] = values.tobytes()
    assert np.asarray(array).ravel().tolist() == values.tolist()
    array[1, 2] = 40
    assert np.frombuffer(bytes(memoryview(memory)[16:]), item)[5] == 40
    assert tuple(adapter.framework.array(memory, 64, dtype, (0, 4)).shape) == (0, 4)


def test_a_gradient_made_elsewhere_moves_into_its_bucket(kind, adapter, engine):
    """It would not be sent, or the next backward would add to an array that is not in memory."""
    bucket = loaded(adapter, engine, ["0.weight", "0.bias"])
    adapter.backward(*network.batch(0, 0), spare=False)
    before = adapter.gradients()
    for name, view in zip(bucket.names, bucket.views, strict=True):
        adapter.framework.adopt(name, view)
    adapter.framework.check_in_place([bucket])
    for name, view in zip(bucket.names, bucket.views, strict=True):
        assert np.array_equal(adapter.gradients()[name], before[name])
        assert bool(view.any())
    adapter.backward(*network.batch(0, 0), spare=False)
    assert np.allclose(adapter.gradients()["0.bias"], 2 * before["0.bias"])
    assert np.allclose(np.asarray(bucket.views[1]), 2 * before["0.bias"]), "backward adds in place"


def test_a_gradient_that_does_not_exist_becomes_zero(kind, adapter, engine):
    """What was in the bucket before would be sent in its place."""
    bucket = loaded(adapter, engine, ["spare.bias"])
    memoryview(bucket.memory)[:] = np.ones(5).tobytes()
    adapter.framework.adopt("spare.bias", bucket.views[0])
    assert not bucket.views[0].any()
    assert not adapter.gradients()["spare.bias"].any()


def test_zeroed_and_dropped_gradients(kind, adapter, engine):
    """Steps would add up, or a parameter that no rank used would be moved by an old gradient."""
    bucket = loaded(adapter, engine, ["0.bias", "spare.bias"])
    memoryview(bucket.memory)[:] = np.ones(305).tobytes()
    adapter.framework.show(bucket, ["0.bias"])
    assert adapter.framework.gradient("0.bias") is bucket.views[0]
    assert adapter.framework.gradient("spare.bias") is None
    adapter.zero_grad()
    assert adapter.framework.gradient("0.bias") is None
    assert np.asarray(bucket.views[0]).all(), "it is taken away, and the memory is as it was"
    adapter.framework.show(bucket)
    adapter.framework.drop("spare.bias")
    assert adapter.gradients()["spare.bias"] is None
    adapter.backward(*network.batch(0, 0), spare=False)
    assert adapter.framework.gradient("0.bias") is not None
    before = adapter.values()
    adapter.step()
    after = adapter.values()
    assert np.array_equal(before["spare.bias"], after["spare.bias"])
    assert not np.array_equal(before["0.bias"], after["0.bias"])


def test_rows_of_a_gradient_go_out_and_come_back(kind, adapter, engine):
    """Rows would be sent that are zero or another's, or end in the wrong places."""
    bucket = loaded(adapter, engine, ["0.weight"])
    numbers, rows = adapter.framework.rows("0.weight", 0.5)
    assert (numbers.shape, rows.shape[0]) == ((0,), 0), "there is no gradient"
    adapter.framework.adopt("0.weight", bucket.views[0])
    view = np.asarray(bucket.views[0])
    view[[1, 3]] = np.arange(2 * view[0].size, dtype=np.float64).reshape(2, *view.shape[1:]) + 1
    numbers, rows = adapter.framework.rows("0.weight", 0.5)
    assert numbers.tolist() == [1, 3]
    assert np.array_equal(rows.view(np.float64), 0.5 * view[[1, 3]])
    adapter.framework.set_rows("0.weight", np.array([0, 3]), rows)
    expected = np.zeros_like(view)
    expected[[0, 3]] = rows.view(np.float64)
    found = adapter.gradients()["0.weight"]
    assert np.array_equal(found if found.shape == expected.shape else found.T, expected)


def test_hooks_tell_of_each_gradient_once_and_of_the_end(kind, adapter, engine):
    """Buckets would leave before their gradients are complete, or never."""
    names = [name for name in network.values(seed=0) if not name.startswith("spare")]
    buckets = [loaded(adapter, engine, names[:2]), loaded(adapter, engine, names[2:])]
    events = []
    readiness = Recorder(events, lambda: adapter.framework.when_backward_ends(lambda: events.append("end")))
    for bucket in buckets:
        adapter.framework.show(bucket)
    adapter.framework.hook(buckets, readiness)
    adapter.framework.hook(buckets, readiness)
    adapter.backward(*network.batch(0, 0), spare=False)
    assert events[-1] == "end"
    assert sorted(events[:-1]) == [(at, i) for at, own in enumerate(buckets) for i in range(len(own.views))]
    assert set(events[:2]) == {(1, 2), (1, 3)}, "the last layer's gradients come first"
    reference = network.Reference(network.values(seed=0)).gradients(0, 0)
    for bucket in buckets:
        for name, view in zip(bucket.names, bucket.views, strict=True):
            own = adapter.gradients()[name]
            assert np.allclose(own, reference[name], rtol=1e-12)
            assert np.isclose(float(abs(np.asarray(view)).sum()), abs(own).sum())


class Recorder:
    """In place of the native `Readiness`."""

    def __init__(self, events, first):
        self.events, self.first = events, first

    def hook(self, bucket, index, view):
        def ready(parameter):
            assert parameter.grad is view
            if not self.events:
                self.first()
            self.events.append((bucket, index))

        return ready


def test_the_state_goes_from_one_rank_to_another(kind, adapter):
    """Replicas would start apart."""
    for step in range(2):
        adapter.backward(*network.batch(0, step), spare=False)
        adapter.step()
        adapter.zero_grad()
    other = ADAPTERS[kind](network.values(seed=1))
    assert other.framework.optimizer_state() == b""
    with other.framework.filling() as state:
        for into, each in zip(state, adapter.framework.state(), strict=True):
            into[:] = each
    other.framework.load_optimizer_state(adapter.framework.optimizer_state())
    for each in (adapter, other):
        each.backward(*network.batch(0, 3), spare=True)
        each.step()
    for name, value in adapter.values().items():
        assert np.array_equal(value, other.values()[name]), name


def test_a_job_goes_on_from_rank_0(kind, tmp_path):
    """A resumed job would begin with the optimizer's state on one rank alone."""
    reference = network.Reference(network.values(seed=0))
    for step in network.BEFORE:
        reference.apply([reference.gradients(0, step)])
    ended = ranks.run(f"{CASES}:resumed", network.WORLD, tmp_path, kind)
    assert ended.outcome.code == 0, ended.output
    results = ended.returned
    assert_replicas(results)
    plain = network.trained(
        lambda own, rank, step: own.gradients(rank, step), range(network.STEPS), reference
    )
    assert_equal(results[0], plain[1])


def test_models_that_differ_are_named(kind, tmp_path):
    """Ranks would average unrelated numbers."""
    ended = ranks.run(
        f"{CASES}:differ", 2, tmp_path, kind, settings=Settings(timeout_s=60, start_timeout_s=60)
    )
    assert ended.outcome.code != 0
    assert ended.output.count("the models of rank 0 and rank 1 differ: `1.weight` is") >= 2


def test_a_lost_rank_is_named(kind, tmp_path):
    """The others would wait, or not know for whom."""
    ended = ranks.run(f"{CASES}:lost", network.WORLD, tmp_path, kind)
    assert ended.outcome.code != 0
    assert [ended.returned[rank] for rank in (0, 2)] == [[1, "lost"]] * 2, ended.output
