"""The ready-made policies: short, right on the reference executor, and each what its file says."""

import ast
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from hocket import testing
from hocket.policies import READY_MADE, DoubleSqueeze, Int4, Int8, PartialF16, PowerSGD, SparseInt2, TopK
from hocket.policy.policy import Policy
from hocket.policy.topology import Topology
from hocket.reference.kernels import KERNELS

MOST_LINES = {
    "partial_f16": 25,
    "priority": 8,
    "two_level": 15,
    "adaptive_fusion": 30,
    "top_k": 25,
    "int8": 25,
    "int4": 25,
    "double_squeeze": 45,
    "sparse_int2": 30,
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


@pytest.mark.parametrize(
    ("policy", "steps"),
    [(TopK, 150), (Int8, 20), (Int4, 40), (DoubleSqueeze, 20), (SparseInt2, 150), (PowerSGD, 150)],
)
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
        agreed={
            TopK: {"share": 0.05},
            DoubleSqueeze: {"bits": 4},
            SparseInt2: {"chunk": 64, "count": 4, "decay": 1.0},
        }.get(policy),
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


CODECS = {
    "int4": (Int4, {"block": 128}, lambda m: -(-m // 2) + 4 * -(-m // 128)),
    "sparse_int2": (
        SparseInt2,
        {"chunk": 4096, "count": 32},
        lambda m: (sent := m // 4096 * 32 + min(32, m % 4096)) * 2 + -(-sent // 4) + 8 * -(-m // 4096),
    ),
}


@pytest.mark.parametrize("decay", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("name", CODECS)
def test_what_is_kept_and_sent_is_all_there_was(name, decay):
    """Broken: progress would be lost in silence, or sent twice, or old residuals would never fade."""
    policy, agreed, _ = CODECS[name]
    generator, residual = np.random.default_rng(3), np.zeros(600)
    # One rank: what it gets back is what it sent.
    gradients = [[{"g0": generator.standard_normal(600).astype(np.float32)}] for _ in range(5)]
    smaller = {"chunk": 64, "count": 4} if name == "sparse_int2" else {}
    result = testing.run(
        policy(),
        world=1,
        shapes=((600,),),
        steps=5,
        gradients=gradients,
        agreed=agreed | smaller | {"decay": decay},
    )
    for at, step in enumerate(result.gradients):
        whole = decay * residual + gradients[at][0]["g0"]
        residual = whole - step[0]["g0"]
        # A residual that the codec has not kept would show in what it sends next.
        expected = _sent_of(name, whole.astype(np.float32))
        np.testing.assert_allclose(step[0]["g0"], expected, rtol=1e-4, atol=1e-5)


def _sent_of(name, whole):
    """Values that others receive by a codec, by its definition in NumPy."""
    out = np.zeros_like(whole)
    if name == "int4":
        coded = np.zeros(-(-len(whole) // 2), np.uint8), np.zeros(-(-len(whole) // 128), np.float32)
        KERNELS["quantise.int4"]([whole], coded, (128,))
        KERNELS["dequantise.int4"](coded, [out], (128,))
        return out
    count, chunks = len(whole) // 64 * 4 + min(4, len(whole) % 64), -(-len(whole) // 64)
    coded = (
        np.zeros(2 * count, np.uint8),
        np.zeros(-(-count // 4), np.uint8),
        np.zeros(2 * chunks, np.float32),
    )
    KERNELS["top_k.int2"]([whole], coded, (64, 4))
    KERNELS["scatter_add.int2"](coded, [out], (64, 4))
    return out


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("elements", [1, 2, 127, 4097, 40_960])
def test_codecs_send_as_many_bytes_as_they_say(name, elements):
    """Broken: padding or wide indices would make a codec of few bits send many."""
    policy, _, of = CODECS[name]
    world = 3
    (program, *_) = testing.run(policy(), world=world, shapes=((elements,),)).programs
    for rank in range(world):
        ops = [op for op in program.ops(rank) if op["op"] == "send"]
        sent = sum((op["src"][2] - op["src"][1]) * {"u8": 1, "f32": 4}[op["wire"]] for op in ops)
        assert sent == (world - 1) * of(elements)
    if elements >= 40_960:
        most = elements / 2 + 4 * -(-elements // 128) if name == "int4" else elements * 4 / 200
        assert of(elements) <= most


WIDTHS = {"u8": 1, "i8": 1, "f32": 4}
RACKS = Topology.even(world=6, racks=3, trunk_bit_per_s=1e8)


@pytest.mark.parametrize(
    ("policy", "agreed", "codes"),
    [
        (DoubleSqueeze, {"bits": 8}, 2 * (1 + 4 / 128)),
        (DoubleSqueeze, {"bits": 4}, 2 * (1 / 2 + 4 / 128)),
        (Int4, {}, 3 * (1 / 2 + 4 / 128)),
        (SparseInt2, {}, 3 * (32 * 2.25 + 8) / 4096),
    ],
)
def test_a_rack_sends_its_sum_once(policy, agreed, codes):
    """Broken: on a site's uplink, bytes would grow with the ranks of a site. `codes`: bytes of an element that cross, 3 racks."""
    elements = 3 << 16
    given = {"topology": RACKS, "shapes": ((elements,),), "agreed": {"levels": 2, **agreed}}
    (program, *_) = testing.run(policy(), **given).programs
    left = dict.fromkeys(RACKS.racks, 0)
    for rank in range(6):
        for op in program.ops(rank):
            if op["op"] == "send" and RACKS.racks[op["peer"]] != RACKS.racks[rank]:
                left[RACKS.racks[rank]] += (op["src"][2] - op["src"][1]) * WIDTHS[op["wire"]]
    # A part goes to each other rack and back, or all codes go around.
    assert set(left.values()) == {elements * codes * 2 / 3}


@pytest.mark.parametrize(
    ("policy", "agreed", "steps"),
    [
        (DoubleSqueeze, {"bits": 4}, 40),
        (Int4, {}, 40),
        (SparseInt2, {"chunk": 64, "count": 4, "decay": 1.0}, 150),
    ],
)
@pytest.mark.parametrize(
    "topology",
    [RACKS, Topology.even(world=5, racks=2), Topology.even(world=6, hosts_per_rack=2)],
    ids=["racks", "unequal racks", "hosts"],
)
def test_sums_of_racks_lose_nothing(policy, agreed, steps, topology):
    """Broken: what a rack's leader rounds would be lost, or come back at another weight."""
    generator = np.random.default_rng(7)
    gradient = [{"g0": generator.standard_normal(600).astype(np.float32)} for _ in topology.ranks]
    result = testing.run(
        policy(),
        topology=topology,
        shapes=((600,),),
        steps=steps,
        gradients=[gradient] * steps,
        agreed={"levels": 2, **agreed},
    )
    mean = np.mean([each["g0"] for each in gradient], axis=0)
    over_time = np.mean([step[0]["g0"] for step in result.gradients], axis=0, dtype=np.float64)
    first = np.linalg.norm(result.gradients[0][0]["g0"] - mean)
    assert np.linalg.norm(over_time - mean) < 0.25 * first


class Ring(Policy):
    """Policy of a ring, with whose bytes others are compared."""

    def on_buffer_ready(self, cx, buffer):
        cx.all_reduce(buffer, op="mean", algorithm="ring")


PAGE = (Path(__file__).parents[2] / "docs/policies.md").read_text()
TABLED = {
    "`int8`": (Int8, {}),
    "`int4`": (Int4, {}),
    "`sparse_int2`": (SparseInt2, {}),
    "`double_squeeze`": (DoubleSqueeze, {}),
    "`double_squeeze`, 4 bits": (DoubleSqueeze, {"bits": 4}),
}


def busiest(policy, world, agreed):
    """Most bytes that a rank sends."""
    shapes = ((1 << 17,),)
    (program, *_) = testing.run(policy(), world=world, shapes=shapes, agreed=agreed).programs
    return max(
        sum(
            (op["src"][2] - op["src"][1]) * WIDTHS[op["wire"]]
            for op in program.ops(rank)
            if op["op"] == "send"
        )
        for rank in range(world)
    )


@pytest.mark.parametrize("row", TABLED)
def test_the_page_tells_what_few_bits_send(row):
    """Broken: who chooses a codec by the page would find more on a link than it says, the more ranks the more."""
    policy, agreed = TABLED[row]
    *columns, of_n = re.search(rf"^\| {re.escape(row)} \| (.*) \|$", PAGE, re.M)[1].split(" | ")
    factor, *by_ranks = of_n.split()
    for world, said in zip((2, 4, 8, 16), columns, strict=True):
        found = busiest(policy, world, agreed) / busiest(Ring, world, {})
        assert f"{found:.3g}" == said, world
        assert found == pytest.approx(float(factor) * (world if by_ranks else 1), rel=0.005)


@pytest.mark.parametrize("shape", ["powers", "equal", "zeros"])
def test_two_bits_never_send_worse_than_nothing(shape):
    """Broken: residuals would grow for ever where few elements are large."""
    values = {
        "powers": 2.0 ** -np.arange(64),
        "equal": np.full(64, -3.0),
        "zeros": np.eye(1, 64)[0],
    }[shape].astype(np.float32)
    left = values - _sent_of("sparse_int2", values)
    assert np.linalg.norm(left) < np.linalg.norm(values)
