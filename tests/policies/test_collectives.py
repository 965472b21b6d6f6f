"""Every collective by every algorithm that it has, over groups of any size, against NumPy; and what is proven of each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket import testing
from hocket.artefacts.algorithms import LIST
from hocket.errors import PolicyError
from hocket.policy.policy import Policy
from hocket.policy.topology import Topology

ALL = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce_to",
    "gather",
    "scatter",
    "all_to_all",
)
POWERS_OF_TWO = {("reduce_scatter", "halving_doubling"), ("all_gather", "halving_doubling")}
ALGORITHMS = {
    what: (
        *(
            entry.name
            for entry in LIST
            if what.removesuffix("_to") in entry.does and (what, entry.name) not in POWERS_OF_TWO
        ),
        "auto",
    )
    for what in ALL
}
COLLECTIVES = [(what, how) for what, hows in ALGORITHMS.items() for how in hows]


def part(values, at, n):
    return slice(len(values) * at // n, len(values) * (at + 1) // n)


def expected(what, inputs, group, root, op):  # noqa: PLR0912  # a case per collective
    """By member of the group; None where nothing is promised."""
    n = len(group)
    taken = [inputs[rank].astype(np.float64) for rank in group]
    total = {"sum": np.sum, "mean": np.mean, "min": np.min, "max": np.max}[op](taken, axis=0)
    made = []
    for i in range(n):
        out = taken[i].copy()
        match what:
            case "all_reduce":
                out = total
            case "reduce_scatter":
                keep = total[part(out, i, n)]
                out[:] = np.nan
                out[part(out, i, n)] = keep
            case "all_gather":
                for j in range(n):
                    out[part(out, j, n)] = taken[j][part(out, j, n)]
            case "broadcast":
                out = taken[root]
            case "reduce_to":
                out = total if i == root else np.full_like(out, np.nan)
            case "gather":
                if i == root:
                    for j in range(n):
                        out[part(out, j, n)] = taken[j][part(out, j, n)]
            case "scatter":
                out[part(out, i, n)] = taken[root][part(out, i, n)]
            case "all_to_all":
                for j in range(n):
                    out[part(out, j, n)] = taken[j][part(out, i, n)]
        made.append(out)
    return made


@st.composite
def cases(draw):
    world = draw(st.integers(1, 9))
    group = draw(st.lists(st.sampled_from(range(world)), min_size=1, max_size=world, unique=True))
    what, how = draw(st.sampled_from(COLLECTIVES))
    elements = draw(st.sampled_from([1, 5, 36, 101]))
    if what == "all_to_all":
        elements = 6 * len(group)
    op = draw(st.sampled_from(["sum", "mean", "min", "max"]))
    return (
        world,
        group,
        what,
        how,
        elements,
        op,
        draw(st.integers(0, len(group) - 1)),
        draw(st.integers(0, 99)),
    )


@settings(max_examples=250)
@given(cases())
def test_collective(case):
    """A collective would give another result than its name says, for some group, length or algorithm."""
    world, group, what, how, elements, op, root, seed = case
    arguments = {"group": group, "algorithm": how}
    if what in ("broadcast", "reduce_to", "gather", "scatter"):
        arguments["root"] = group[root]
    if what in ("all_reduce", "reduce_scatter", "reduce_to"):
        arguments["op"] = op
    if how == "two_level":
        arguments["sizes"] = [1, len(group) - 1] if len(group) > 1 else [1]

    class One(Policy):
        contract = "none"

        def on_buffer_ready(self, cx, buffer):
            if cx.rank in group:
                made = getattr(cx, what)(buffer, **arguments)
                if what == "all_to_all":
                    cx.copy(made, into=buffer)

    agreed = {"chunk_bytes": 64}
    topology = Topology.even(world=world, hosts_per_rack=1 if how == "in_place" else world)
    result = testing.run(One(), topology=topology, shapes=((elements,),), seed=seed, agreed=agreed)
    inputs = [each["g0"] for each in result.inputs[0]]
    outputs = [each["g0"] for each in result.gradients[0]]
    for rank, wanted in zip(group, expected(what, inputs, group, root, op), strict=True):
        known = ~np.isnan(wanted)
        assert np.allclose(outputs[rank][known], wanted[known], rtol=1e-5, atol=1e-6)
    for rank in set(range(world)) - set(group):
        assert np.array_equal(outputs[rank], inputs[rank])


@pytest.mark.parametrize("what", ["reduce_scatter", "all_gather"])
def test_halving_doubling_is_for_powers_of_two(what):
    """It would fall back to something else in silence."""

    class One(Policy):
        contract = "none"

        def on_buffer_ready(self, cx, buffer):
            getattr(cx, what)(buffer, algorithm="halving_doubling")

    testing.run(One(), world=4)
    with pytest.raises(PolicyError, match="not for this group"):
        testing.run(One(), world=6)


def test_barrier_orders_what_memory_does_not():
    """A barrier that nothing waits for is none."""

    class One(Policy):
        def on_buffer_ready(self, cx, buffer):
            cx.all_reduce(buffer, op="mean")
            cx.barrier()
            cx.fill(cx.alloc(3), 1)

    program = testing.run(One(), world=3, shapes=((12,),)).programs[0]
    ops = program.ops(0)
    fill = max(at for at, op in enumerate(ops) if op["op"] == "call" and op["constants"] == [1.0])

    def before(at):
        return {at}.union(*(before(each) for each in ops[at]["after"]))

    # All that stands before the barrier, and every word of the others that they are there too.
    barrier = min(at for at, op in enumerate(ops) if op["op"] == "copy")
    heard = {at for at, op in enumerate(ops) if op["op"] == "recv" and at > barrier}
    assert heard
    assert set(range(barrier + 1)) | heard <= before(fill)


def test_auto_looks_at_the_network():
    """Slow trunks would carry every rank's bytes."""

    def algorithm_of(topology, elements):
        program = testing.policies.stages_of(Policy(), topology, elements)["trace"]
        return str(program).partition(" by ")[2].partition(" after")[0]

    assert algorithm_of(Topology.even(world=4, hosts_per_rack=1), 1_000_000) == "in_place"
    slow = {"link_bit_per_s": 2e8, "trunk_bit_per_s": 2e8}
    assert algorithm_of(Topology.even(world=4, **slow), 1_000_000) == "ring"
    trunk = {"link_bit_per_s": 1e9, "trunk_bit_per_s": 1e8}
    assert algorithm_of(Topology.even(world=8, racks=2, **trunk), 1_000_000) == "two_level 4 4"
