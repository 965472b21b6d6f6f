"""One rank of `test_accepted.py`: `accepted_rank.py BACKEND STORE RESULT`. Tries every collective with every element type and
reduction, compares what comes out with what must, and writes `right`, or what went wrong, for each to the file RESULT (rank 0).
"""

import json
import os
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

DTYPES = [
    *("float64", "float32", "float16", "bfloat16"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"),
    *("complex128", "complex64", "complex32"),
]
REDUCTIONS = ["SUM", "AVG", "PREMUL_SUM", "MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR"]
WORLD = 2
FACTOR = 0.5
NUMBERS = ((-5, 0, 3, 6), (-2, 1, 2, 4))
"""Of the ranks: exact in every type, as are their sums, products and averages; an average of integers shows which way it rounds."""


def main():
    backend, store, result = sys.argv[1:]
    rank = int(os.environ["HOCKET_RANK"])
    # Some peers warn of what they are about to drop.
    warnings.simplefilter("ignore")
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=30),
    )
    found = {}
    for dtype in DTYPES:
        for name in REDUCTIONS:
            for what, act in REDUCING.items():
                found[f"{what} {name} {dtype}"] = outcome(lambda a=act, n=name, d=dtype: a(rank, n, d))
        for what, act in MOVING.items():
            found[f"{what} - {dtype}"] = outcome(lambda a=act, d=dtype: a(rank, own(rank, d)))
    for what, act in OTHERS.items():
        found[what] = outcome(lambda a=act: a(rank))
    if rank == 0:
        Path(result).write_text(json.dumps(found))
    dist.destroy_process_group()
    sys.stdout.write(f"rank {rank} is right\n")


def outcome(act):
    try:
        act()
    except AssertionError as error:
        return f"wrong: {error}"
    except Exception as error:  # what a backend refuses, it may refuse as it likes
        return f"{type(error).__name__}: {error}"
    return "right"


def own(rank, dtype):
    numbers = NUMBERS[rank]
    kind = getattr(torch, dtype)
    if dtype.startswith("uint"):
        numbers = [abs(each) for each in numbers]
    if dtype == "bool":
        return torch.tensor(numbers) > 0
    if kind.is_complex:
        return (torch.tensor(numbers, dtype=torch.complex128) * (1 + 2j)).to(kind)
    return torch.tensor(numbers, dtype=torch.float64).to(kind)


def op_of(name):
    return dist._make_nccl_premul_sum(FACTOR) if name == "PREMUL_SUM" else getattr(dist.ReduceOp, name)


def reduced(name, dtype):
    one, two = (own(rank, dtype).to(torch.complex128).tolist() for rank in range(WORLD))
    integral = not (getattr(torch, dtype).is_floating_point or getattr(torch, dtype).is_complex)
    if dtype == "bool":
        by = {
            "SUM": max,
            "MAX": max,
            "BOR": max,
            "PRODUCT": min,
            "MIN": min,
            "BAND": min,
            "BXOR": lambda a, b: a ^ b,
        }
    else:
        by = {
            "SUM": lambda a, b: a + b,
            "AVG": lambda a, b: int((a + b) / 2) if integral else (a + b) / 2,
            "PREMUL_SUM": lambda a, b: a * FACTOR + b * FACTOR,
            "PRODUCT": lambda a, b: a * b,
            "MIN": min,
            "MAX": max,
            "BAND": lambda a, b: a & b,
            "BOR": lambda a, b: a | b,
            "BXOR": lambda a, b: a ^ b,
        }
    as_python = int if integral else (complex if getattr(torch, dtype).is_complex else float)
    real = (lambda each: each) if as_python is complex else (lambda each: as_python(each.real))
    return [by[name](real(a), real(b)) for a, b in zip(one, two, strict=True)]


def check_reduced(tensor, name, dtype):
    got, expected = tensor.to(torch.complex128).tolist(), reduced(name, dtype)
    assert got == expected, f"{got} in place of {expected}"


def all_reduce(rank, name, dtype):
    tensor = own(rank, dtype)
    dist.all_reduce(tensor, op_of(name))
    check_reduced(tensor, name, dtype)


def all_reduce_coalesced(rank, name, dtype):
    tensors = [own(rank, dtype), own(rank, dtype)]
    dist.all_reduce_coalesced(tensors, op_of(name))
    for tensor in tensors:
        check_reduced(tensor, name, dtype)


def reduce(rank, name, dtype):
    tensor = own(rank, dtype)
    dist.reduce(tensor, 1, op_of(name))
    if rank == 1:
        check_reduced(tensor, name, dtype)


def reduce_scatter(rank, name, dtype):
    tensor = torch.empty_like(own(rank, dtype))
    dist.reduce_scatter(tensor, [own(rank, dtype)] * WORLD, op_of(name))
    check_reduced(tensor, name, dtype)


def reduce_scatter_tensor(rank, name, dtype):
    tensor = torch.empty_like(own(rank, dtype))
    dist.reduce_scatter_tensor(tensor, join([own(rank, dtype)] * WORLD), op_of(name))
    check_reduced(tensor, name, dtype)


REDUCING = {
    each.__name__: each
    for each in (all_reduce, all_reduce_coalesced, reduce, reduce_scatter, reduce_scatter_tensor)
}


def raw(tensor):
    return tensor.contiguous().view(torch.uint8)


def join(tensors):
    """torch does not concatenate every type."""
    return torch.cat([raw(each) for each in tensors]).view(tensors[0].dtype)


def check(tensor, expected):
    assert torch.equal(raw(tensor), raw(expected)), f"{tensor} in place of {expected}"


def everyone(mine):
    name = str(mine.dtype).removeprefix("torch.")
    return [own(rank, name) for rank in range(WORLD)]


def check_all(tensors, mine):
    for tensor, expected in zip(tensors, everyone(mine), strict=True):
        check(tensor, expected)


def blank(mine, count=WORLD):
    return [torch.empty_like(mine) for _ in range(count)]


def broadcast(rank, mine):
    dist.broadcast(mine, 1)
    check(mine, everyone(mine)[1])


def all_gather(rank, mine):
    dist.all_gather(into := blank(mine), mine)
    check_all(into, mine)


def all_gather_into_tensor(rank, mine):
    dist.all_gather_into_tensor(into := join(blank(mine)), mine)
    check(into, join(everyone(mine)))


def all_gather_coalesced(rank, mine):
    into = [blank(mine, 2) for _ in range(WORLD)]
    dist.all_gather_coalesced(into, [mine, mine])
    for at in range(2):
        check_all([of_rank[at] for of_rank in into], mine)


def gather(rank, mine):
    into = blank(mine) if rank == 1 else None
    dist.gather(mine, into, 1)
    if rank == 1:
        check_all(into, mine)


def gather_single(rank, mine):
    into = join(blank(mine)) if rank == 1 else None
    dist.gather_single(mine, gather_tensor=into, dst=1)
    if rank == 1:
        check(into, join(everyone(mine)))


def scatter(rank, mine):
    into = torch.empty_like(mine)
    dist.scatter(into, everyone(mine) if rank == 1 else None, 1)
    check(into, mine)


def all_to_all(rank, mine):
    dist.all_to_all(into := blank(mine), [mine] * WORLD)
    check_all(into, mine)


def all_to_all_single(rank, mine):
    dist.all_to_all_single(into := join(blank(mine)), join([mine] * WORLD))
    check(into, join(everyone(mine)))


def send_recv(rank, mine):
    if rank == 0:
        dist.send(mine, 1)
    else:
        dist.recv(into := torch.empty_like(mine), 0)
        check(into, everyone(mine)[0])


def batch_isend_irecv(rank, mine):
    into, other = torch.empty_like(mine), 1 - rank
    ops = [dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, into, other)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    check(into, everyone(mine)[other])


MOVING = {
    each.__name__: each
    for each in (
        broadcast,
        all_gather,
        all_gather_into_tensor,
        all_gather_coalesced,
        gather,
        gather_single,
        scatter,
        all_to_all,
        all_to_all_single,
        send_recv,
        batch_isend_irecv,
    )
}


def coalescing_manager(rank):
    ones = [torch.ones(3) for _ in range(2)]
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for each in ones:
            dist.all_reduce(each)
    manager.wait()
    for each in ones:
        check(each, torch.full((3,), float(WORLD)))


def sparse_all_reduce(rank):
    tensor = torch.tensor([0.0, rank, 5.0]).to_sparse()
    dist.all_reduce(tensor)
    assert tensor.to_dense().tolist() == [0.0, 1.0, 10.0], tensor


def object_collectives(rank):
    objects = [None] * WORLD
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}], objects
    dist.gather_object(rank, objects if rank == 0 else None)
    assert rank or objects == [0, 1], objects
    mine = [None]
    dist.scatter_object_list(mine, ["a", "b"] if rank == 0 else None)
    assert mine == ["ab"[rank]], mine
    told = ["said"] if rank == 0 else [None]
    dist.broadcast_object_list(told)
    assert told == ["said"], told


def send_recv_objects(rank):
    if rank == 0:
        dist.send_object_list([{"a": 1}], 1)
    else:
        got = [None]
        dist.recv_object_list(got, 0)
        assert got == [{"a": 1}], got


def barrier(rank):
    dist.barrier()


def monitored_barrier(rank):
    for _ in range(3):
        dist.monitored_barrier(timeout=timedelta(seconds=20), wait_all_ranks=True)


def new_subgroups(rank):
    _, groups = dist.new_subgroups_by_enumeration([[0], [1]])
    assert len(groups) == WORLD
    dist.all_reduce(one := torch.ones(1), group=groups[rank])
    assert one.item() == 1


def device_mesh(rank):
    mesh = dist.device_mesh.init_device_mesh("cpu", (WORLD, 1), mesh_dim_names=("a", "b"))
    dist.all_reduce(one := torch.ones(1), group=mesh.get_group("a"))
    assert one.item() == WORLD


def older_names(rank):
    """Methods of groups, as programs for older versions of PyTorch call them."""
    group, mine = dist.group.WORLD, torch.full((2,), float(rank))
    into = torch.empty(4)
    group._allgather_base(into, mine).wait()
    assert into.tolist() == [0, 0, 1, 1], into
    group._reduce_scatter_base(mine, into).wait()
    assert mine.tolist() == [2 * rank] * 2, mine


OTHERS = {
    each.__name__: each
    for each in (
        sparse_all_reduce,
        object_collectives,
        send_recv_objects,
        barrier,
        monitored_barrier,
        new_subgroups,
        device_mesh,
        older_names,
        coalescing_manager,  # last: Gloo, which lacks it, is out of step after
    )
}

if __name__ == "__main__":
    main()
