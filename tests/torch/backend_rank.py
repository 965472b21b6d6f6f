"""One rank of a test of the backend `hocket`: `backend_rank.py CASE STORE`. Says `is right` at its end."""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from hocket.errors import PeerError, UsageError
from hocket.policies.partial_f16 import PartialF16
from hocket.policies.power_sgd import PowerSGD
from hocket.policy.policy import Policy

TIMEOUT_S = float(os.environ.get("TEST_TIMEOUT_S", "30"))
ELEMENTS = (0, 1, 77, 300_001)
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
)


def main():
    case, store = sys.argv[1:]
    rank, world = int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])
    meeting = f"tcp://{os.environ['TEST_MEETING']}:29555" if case.endswith("by_tcp") else f"file://{store}"
    dist.init_process_group(
        "gloo" if case.startswith("beside_gloo") else "hocket",
        init_method=meeting,
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    CASES[case](rank, world)
    dist.destroy_process_group()
    sys.stdout.write(f"rank {rank} is right\n")


def own(rank, elements, dtype):
    """Small integers: exact in every type, and so are their sums."""
    return ((torch.arange(elements) * 3 + rank) % 7).to(dtype)


def collectives(rank, world):
    everyone = list(range(world))
    for members in (everyone, everyone[::2]):
        group = dist.new_group(members)
        if rank in members:
            for elements in ELEMENTS:
                for dtype in DTYPES if elements < 1000 else DTYPES[:1]:
                    reductions(group, members, elements, dtype)
                    moves(group, members, elements, dtype)
    odd_tensors(rank, world)


def reductions(group, members, elements, dtype):
    rank, root = dist.get_rank(), members[-1]
    inputs = torch.stack([own(each, elements, dtype) for each in members])
    for op, expected in (
        (dist.ReduceOp.SUM, inputs.sum(0, dtype=dtype)),
        (dist.ReduceOp.MIN, inputs.amin(0) if elements else inputs[0]),
        (dist.ReduceOp.MAX, inputs.amax(0) if elements else inputs[0]),
    ):
        mine = own(rank, elements, dtype)
        dist.all_reduce(mine, op, group=group)
        assert torch.equal(mine, expected), (op, elements, dtype)
        mine = own(rank, elements, dtype)
        work = dist.all_reduce(mine, op, group=group, async_op=True)
        work.wait()
        assert torch.equal(mine, expected)
        mine = own(rank, elements, dtype)
        dist.reduce(mine, root, op, group=group)
        assert torch.equal(mine, expected if rank == root else own(rank, elements, dtype))
    whole = torch.cat([own(rank + at, elements, dtype) for at in range(len(members))])
    part = torch.empty(elements, dtype=dtype)
    dist.reduce_scatter_tensor(part, whole, group=group)
    at = members.index(rank)
    expected = torch.stack([own(each + at, elements, dtype) for each in members]).sum(0, dtype=dtype)
    assert torch.equal(part, expected)
    pieces = [own(rank + to, elements + to, dtype) for to in range(len(members))]
    part = torch.empty(elements + at, dtype=dtype)
    dist.reduce_scatter(part, pieces, group=group)
    expected = torch.stack([own(each + at, elements + at, dtype) for each in members]).sum(0, dtype=dtype)
    assert torch.equal(part, expected)
    assert torch.equal(pieces[at], own(rank + at, elements + at, dtype))
    if dtype.is_floating_point:
        mine = own(rank, elements, dtype) * len(members)
        dist.all_reduce(mine, dist.ReduceOp.AVG, group=group)
        assert torch.equal(mine, inputs.sum(0, dtype=dtype))


def moves(group, members, elements, dtype):
    rank, count, root = dist.get_rank(), len(members), members[0]
    at = members.index(rank)
    mine = own(rank, elements, dtype)
    gathered = torch.empty(count * elements, dtype=dtype)
    dist.all_gather_into_tensor(gathered, mine, group=group)
    assert torch.equal(gathered, torch.cat([own(each, elements, dtype) for each in members]))
    taken = own(rank, elements, dtype)
    dist.broadcast(taken, root, group=group)
    assert torch.equal(taken, own(root, elements, dtype))
    into = [torch.empty(elements, dtype=dtype) for _ in members] if rank == root else None
    dist.gather(mine, into, root, group=group)
    assert into is None or all(
        torch.equal(each, own(member, elements, dtype)) for each, member in zip(into, members, strict=True)
    )
    pieces = [own(member + 1, elements, dtype) for member in members] if rank == root else None
    dist.scatter(taken, pieces, root, group=group)
    assert torch.equal(taken, own(rank + 1, elements, dtype))
    # Rank r sends r + s + elements elements to rank s.
    sends = [members.index(rank) + to + elements for to in range(count)]
    takes = [source + at + elements for source in range(count)]
    sent = torch.cat([own(rank, size, dtype) for size in sends])
    into = torch.empty(sum(takes), dtype=dtype)
    dist.all_to_all_single(into, sent, takes, sends, group=group)
    expected = torch.cat([own(member, size, dtype) for member, size in zip(members, takes, strict=True)])
    assert torch.equal(into, expected)
    dist.barrier(group=group)


def odd_tensors(rank, world):
    """Not contiguous, complex, boolean, Python objects."""
    strided = torch.arange(24.0).view(4, 6).t()[::2] * (rank + 1)
    dist.all_reduce(strided)
    assert torch.equal(strided, torch.arange(24.0).view(4, 6).t()[::2] * sum(range(1, world + 1)))
    turning = torch.full((5,), 1 + rank * 1j)
    dist.all_reduce(turning)
    assert torch.equal(turning, torch.full((5,), world + sum(range(world)) * 1j))
    flags = torch.tensor([rank == 0, False, True])
    dist.all_reduce(flags)
    assert flags.tolist() == [True, False, True]
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert [each["rank"] for each in objects] == list(range(world))


def in_place(rank, world):
    """Ranks of one host read each other's memory; what they would overwrite while others read it must go another way."""
    elements = 100_000
    for turn in range(4):  # the kernel is asked for large pages from the second use on
        whole = torch.cat([own(rank + to + turn, elements, torch.float32) for to in range(world)])
        dist.all_to_all_single(whole, whole)
        expected = [own(source + rank + turn, elements, torch.float32) for source in range(world)]
        assert torch.equal(whole, torch.cat(expected)), turn
        whole.view(world, -1)[rank] = own(rank + turn, elements, torch.float32)
        dist.all_gather_into_tensor(whole, whole.view(world, -1)[rank])
        expected = [own(source + turn, elements, torch.float32) for source in range(world)]
        assert torch.equal(whole, torch.cat(expected)), turn


def messages(rank, world):
    """Tags out of order, both directions at once, more than a frame, from anyone."""
    after, before = (rank + 1) % world, (rank - 1) % world
    large = own(rank, 2_000_000, torch.float32)
    into = [torch.empty_like(large), torch.empty(3)]
    receives = [dist.irecv(into[1], before, tag=2), dist.irecv(into[0], before, tag=1)]
    sends = [dist.isend(large, after, tag=1), dist.isend(torch.full((3,), float(rank)), after, tag=2)]
    for work in (*receives, *sends):
        work.wait()
    assert torch.equal(into[0], own(before, 2_000_000, torch.float32))
    assert into[1].tolist() == [before] * 3
    if rank == 0:
        sums = torch.empty(1)
        found = []
        for _ in range(world - 1):
            dist.distributed_c10d._get_default_group().recv_anysource([sums], 5).wait()
            found.append(int(sums))
        assert sorted(found) == list(range(1, world))
    else:
        dist.send(torch.tensor([float(rank)]), 0, tag=5)


def different_calls(rank, _world):
    tensor = torch.ones(8)
    error = refused(lambda: dist.all_reduce(tensor) if rank else dist.broadcast(tensor, 0), UsageError)
    assert "all_reduce (sum, f32) of 32 bytes" in str(error), error
    assert "broadcast of 32 bytes with root 0" in str(error), error
    assert (error.rank == 0) == (rank != 0), vars(error)
    assert "the group is out of step" in refusal(lambda: dist.all_reduce(tensor))


def other_sizes(rank, _world):
    """A message of another size than expected ends the job with both sizes."""
    if rank == 0:
        dist.send(torch.ones(4), 1)
        time.sleep(2)
        return
    message = refusal(lambda: dist.recv(torch.ones(2), 0))
    assert "rank 0 sends 16 bytes where 8 are received" in message, message


def stays_away(rank, _world):
    """Who does not come is named before torch gives up."""
    if rank == 1:
        time.sleep(5 * TIMEOUT_S)
        return
    message = refusal(lambda: dist.all_reduce(torch.ones(8)))
    assert "not complete within the timeout of" in message, message
    assert "rank 1 did not come" in message, message
    for act in (lambda: dist.recv(torch.ones(8), 1), lambda: dist.irecv(torch.ones(8), 1).wait()):
        error = refused(act, PeerError)
        assert "waits for rank 1" in str(error), error
        assert (error.rank, error.why, error.missing) == (1, "timeout", (1,)), vars(error)
        assert isinstance(error, RuntimeError)


def is_missed(rank, world):
    """By a monitored barrier: rank 0 names all who did not come, the others hear of it, and it works again after."""
    limit = timedelta(seconds=2)
    dist.monitored_barrier(timeout=limit)
    if rank in (0, world - 1):
        message = refusal(lambda: dist.monitored_barrier(timeout=limit, wait_all_ranks=True))
        assert "Ranks 1, 2 failed to pass monitoredBarrier in 2000 ms" in message, message
        assert f"rank {rank} on " in message, message
    else:
        time.sleep(3)


def refuses_at_the_call(rank, world):
    """A reduction that there is not is refused where it is asked for, not by a wait somewhere else."""
    unsigned = torch.ones(3, dtype=torch.uint16)
    message = refusal(lambda: dist.all_reduce(unsigned, async_op=True), TypeError)
    assert "backend hocket has no SUM of torch.uint16" in message, message
    halves = torch.full((3,), 40_000.0, dtype=torch.float16)
    dist.all_reduce(halves, dist.ReduceOp.AVG)
    assert halves.isfinite().all(), halves
    kept = torch.tensor([7, -7])
    dist.reduce(kept, 0, dist.ReduceOp.AVG)
    assert kept.tolist() == [7, -7], kept


def dies(rank, world):
    """A rank that is killed ends all waits at once, whatever the time-out."""
    dist.barrier()
    if rank == world - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error = refused(lambda: [dist.all_reduce(torch.ones(1000)) for _ in range(3)], PeerError)
    assert f"rank {world - 1}" in str(error), error
    assert (error.rank, error.why) == (world - 1, "lost"), vars(error)
    assert error.host, vars(error)
    assert isinstance(error, RuntimeError), "programs that know nothing of Hocket catch RuntimeError"
    sys.stdout.write(f"rank {rank} is right\n")
    sys.stdout.flush()
    # To a rank that has not noticed yet, whoever ends first would be the one that is lost.
    time.sleep(2)
    os._exit(0)


def refusal(act, kind=RuntimeError):
    return str(refused(act, kind))


def refused(act, kind):
    try:
        act()
    except kind as error:
        return error
    raise AssertionError("nothing was refused")


def network():
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Linear(64, 5)
    )


def train(model, rank, world, steps=8):
    """The same samples in all, whoever has them; what the parameters become."""
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    data = torch.Generator().manual_seed(3)
    for _ in range(steps):
        samples, labels = (
            torch.randn(world * 8, 20, generator=data),
            torch.randint(0, 5, (world * 8,), generator=data),
        )
        optimizer.zero_grad()
        mine = slice(rank * 8, rank * 8 + 8) if rank is not None else slice(None)
        torch.nn.functional.cross_entropy(model(samples[mine]), labels[mine]).backward()
        optimizer.step()


def flat(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def ddp(rank, world):
    """DDP, plain and by a policy, learns what one process learns."""
    import hocket.torch as hk

    alone = network()
    train(alone, None, world)
    for hook in (None, hk.ddp_hook(Policy()), hk.ddp_hook(PartialF16())):
        model = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.01)
        if hook is not None:
            model.register_comm_hook(None, hook)
        train(model, rank, world)
        torch.testing.assert_close(flat(model), flat(alone), rtol=1e-4, atol=1e-5)
    # The last rank has a batch less, and the others' mean is theirs alone.
    batches = [torch.full((2, 20), each + 1.0) for each in range(world)]
    model = torch.nn.parallel.DistributedDataParallel(network(), find_unused_parameters=True)
    with model.join(divide_by_initial_world_size=False):
        for _ in range(3 - (rank == world - 1)):
            model.zero_grad()
            model(batches[rank]).square().mean().backward()
    if rank < world - 1:
        alone = network()
        torch.stack([alone(each).square().mean() for each in batches[:-1]]).mean().backward()
        for one, two in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one.grad, two.grad)


def power_sgd(rank, world):
    """Messages of several buckets under way at once: with PyTorch's own hook over Gloo, such a job ends when a rank receives a
    message of another size than it expects."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    import hocket.torch as hk

    wide = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)), torch.nn.Linear(256, 5))
    model = torch.nn.parallel.DistributedDataParallel(wide, bucket_cap_mb=0.25)
    model.register_comm_hook(None, hk.ddp_hook(PowerSGD()))
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.randn(8, 256)).square().mean().backward()
        optimizer.step()
    mine = flat(model)
    others = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(others, mine)
    assert all(torch.equal(each, mine) for each in others), f"rank {rank} differs"
    assert mine.isfinite().all()
    # PyTorch's own, whose callbacks call: after their own call, on all ranks.
    model = torch.nn.parallel.DistributedDataParallel(wide, bucket_cap_mb=0.25)
    state = power.PowerSGDState(process_group=None, start_powerSGD_iter=2, min_compression_rate=1)
    model.register_comm_hook(state, power.powerSGD_hook)
    for _ in range(6):
        model.zero_grad()
        model(torch.randn(8, 256)).square().mean().backward()
    mine = torch.cat([each.grad.flatten() for each in model.parameters()])
    dist.all_gather(others, mine)
    assert all(torch.equal(each, mine) for each in others), f"rank {rank} differs"


def fsdp(rank, world):
    """FSDP2 on the CPU learns what one process learns, and its checkpoint comes back."""
    import tempfile

    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    alone = network()
    train(alone, None, world)
    mesh = init_device_mesh("cpu", (world,))
    model = network()
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, rank, world)
    full = torch.cat([each.full_tensor().flatten() for each in model.parameters()]).detach()
    torch.testing.assert_close(full, flat(alone), rtol=1e-4, atol=1e-5)
    places = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(places, 0)
    checkpoint.save(get_model_state_dict(model), checkpoint_id=places[0])
    with torch.no_grad():
        for each in model.parameters():
            each.zero_()
    state = get_model_state_dict(model)
    checkpoint.load(state, checkpoint_id=places[0])
    set_model_state_dict(model, state)
    back = torch.cat([each.full_tensor().flatten() for each in model.parameters()]).detach()
    assert torch.equal(back, full)
    dist.barrier()
    if rank == 0:
        import shutil

        shutil.rmtree(places[0])


def beside_gloo(rank, world):
    """A group of our backend whose first rank is on another host than the world's."""
    members = list(range(1, world))
    group = dist.new_group(members, backend="hocket")
    if rank in members:
        reductions(group, members, 1000, torch.float32)
    dist.barrier()  # rank 0 serves torch's store


CASES = {
    each.__name__: each
    for each in (
        *(collectives, messages, different_calls, other_sizes, stays_away, is_missed, refuses_at_the_call),
        *(in_place, dies, ddp, power_sgd, fsdp),
    )
} | {"beside_gloo_by_tcp": beside_gloo, "beside_gloo_by_file": beside_gloo}

if __name__ == "__main__":
    main()
