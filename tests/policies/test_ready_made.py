"""The ready-made policies: short, right on the reference executor, and each what its file says."""

import ast
import inspect

import numpy as np
import pytest

from hocket import testing
from hocket.policies import READY_MADE, Int8, PartialF16, PowerSGD, TopK
from hocket.policy.topology import Topology

MOST_LINES = {
    "partial_f16": 25,
    "priority": 8,
    "two_level": 15,
    "adaptive_fusion": 30,
    "top_k": 25,
    "int8": 25,
    "power_sgd": 40,
}
TOPOLOGIES = {
    "four hosts": Topology.even(world=4),
    "two racks": Topology.even(world=8, racks=2, trunk_bit_per_s=1e8),
    "two hosts of three": Topology.even(world=6, racks=2, hosts_per_rack=1),
    "alone": Topology.even(world=1),
    "odd": Topology.even(world=5, racks=2, trunk_bit_per_s=1e9),
}


def code_lines(policy):
    """Lines of the class without docstrings, comments and blank lines."""
    source = inspect.getsource(policy)
    lines = source.splitlines()
    without = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(node, ast.ClassDef | ast.FunctionDef):
            first = body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                without.update(range(first.lineno, first.end_lineno + 1))
    return [
        line
        for at, line in enumerate(lines, 1)
        if at not in without and line.strip() and not line.strip().startswith("#")
    ]


@pytest.mark.parametrize("name", MOST_LINES)
def test_lines(name):
    """A new algorithm is no longer a page of Python."""
    lines = code_lines(READY_MADE[name])
    assert len(lines) <= MOST_LINES[name], "\n".join(lines)


@pytest.mark.parametrize("where", TOPOLOGIES)
@pytest.mark.parametrize("name", READY_MADE)
def test_replicas_are_equal(name, where):
    """Ranks would train different models."""
    shapes = ((64, 32), (32,), (7, 5), (1,))
    result = testing.run(READY_MADE[name](), topology=TOPOLOGIES[where], shapes=shapes, steps=3)
    for step in result.gradients:
        for each in step:
            assert all(np.array_equal(each[key], step[0][key]) for key in each)
    if READY_MADE[name].contract == "mean":
        assert result.error() < (1e-3 if name == "partial_f16" else 1e-6)


def test_f16_crosses_slow_links_alone():
    """All links would lose precision, or the slow one would carry f32."""
    topology = Topology.even(world=6, racks=2, trunk_bit_per_s=1e8)
    (program, *_) = testing.run(PartialF16(), topology=topology).programs
    for rank in range(6):
        for op in program.ops(rank):
            if op["op"] == "send":
                slow = topology.racks[rank] != topology.racks[op["peer"]]
                assert op["wire"] == ("f16" if slow else "f32")
            # Cast, add and move are one op: nothing is left between.
            assert op["op"] in ("send", "recv", "apply", "record")


def test_partial_f16_is_more_exact_than_f16_everywhere():
    class Everywhere(PartialF16):
        def on_buffer_ready(self, cx, buffer):
            half = cx.cast(buffer, "f16")
            cx.all_reduce(half, op="mean", algorithm="ring")
            cx.cast(half, "f32", into=buffer)

    topology = Topology.even(world=4, racks=2, trunk_bit_per_s=1e8)
    shapes = ((300, 100),)
    partial = testing.run(PartialF16(), topology=topology, shapes=shapes).error()
    everywhere = testing.run(Everywhere(), topology=topology, shapes=shapes).error()
    assert partial < everywhere


@pytest.mark.parametrize(("policy", "steps"), [(TopK, 150), (Int8, 20), (PowerSGD, 150)])
def test_error_feedback_loses_nothing(policy, steps):
    """What is left out of one step must come with a later one: the sum over steps approaches the sum of means."""
    generator = np.random.default_rng(5)
    # The same gradient again and again: an unbiased method's mean over time is the gradient.
    gradient = [{"g0": generator.standard_normal(600).astype(np.float32)} for _ in range(3)]
    result = testing.run(
        policy(),
        world=3,
        shapes=((600,),),
        steps=steps,
        gradients=[gradient] * steps,
        agreed={"share": 0.05} if policy is TopK else None,
    )
    mean = np.mean([each["g0"] for each in gradient], axis=0)
    over_time = np.mean([step[0]["g0"] for step in result.gradients], axis=0, dtype=np.float64)
    first = np.linalg.norm(result.gradients[0][0]["g0"] - mean)
    last = np.linalg.norm(over_time - mean)
    assert last < 0.25 * first or last < 1e-2 * np.linalg.norm(mean)


def test_top_k_sends_less_where_gradients_are_zero():
    """Sizes vary at run time: a rank with one non-zero element sends one."""
    gradients = [{"g0": np.zeros(100, np.float32)} for _ in range(3)]
    gradients[0]["g0"][7] = 3.0
    gradients[2]["g0"][[1, 2, 99]] = 6.0
    result = testing.run(TopK(), world=3, shapes=((100,),), gradients=[gradients], agreed={"share": 0.1})
    expected = np.zeros(100, np.float32)
    expected[7], expected[[1, 2, 99]] = 1.0, 2.0
    for each in result.gradients[0]:
        assert np.allclose(each["g0"], expected)
