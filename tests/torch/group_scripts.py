"""Ranks of tests of the backend's groups, futures and callbacks; each makes its own process group."""

import gc
import os
import threading
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)

WIDTH = 48
SEVERAL_BUCKETS_MB = 0.005


def meet(store, timeout_s=60):
    rank, world = int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])
    dist.init_process_group(
        "hocket",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout_s),
    )
    return rank, world


def everyone(world):
    return dist.new_group(list(range(world)))


def come_and_go(store):
    """Groups end in every order, while other ranks are in the last call; returns sums, and how many groups live on."""
    rank, world = meet(store)
    gone = []
    sums = []
    for turn in range(12):
        group = everyone(world)
        gone.append(weakref.ref(group))
        own = torch.full((1000,), float(rank + turn))
        dist.all_reduce(own, group=group)
        dist.destroy_process_group(group)
        del group
        sums.append(own[0].item())
    # The inner ones end first, then the outer ones; without `del`, and with a cycle that only the collector finds.
    outer = everyone(world)
    inner = everyone(world)
    inner.outer, outer.inner = outer, inner
    for group in (inner, outer):
        dist.barrier(group=group)
        dist.destroy_process_group(group)
    refused = refusal(inner.barrier)
    del inner, outer, group
    gc.collect()
    everyone(world)  # never destroyed by itself
    dist.destroy_process_group()
    return [sums, sum(each() is not None for each in gone), refused]


def never_awaited(store):
    """Works that nobody waits for are done when the group is destroyed, and others are not told that this rank left."""
    rank, world = meet(store)
    group = everyone(world)
    kept = [torch.full((50_000,), float(rank)) for _ in range(8)]
    for each in kept[:4]:
        dist.all_reduce(each, group=group, async_op=True)
    dist.destroy_process_group(group)
    for each in kept[4:]:
        dist.all_reduce(each, async_op=True)
    dist.destroy_process_group()
    return [each[0].item() for each in kept]


def awaited_often(store):
    """Twice, from another thread, by wait and by future, and after it is long complete."""
    rank, _ = meet(store)
    own = torch.full((10,), float(rank))
    work = dist.all_reduce(own, async_op=True)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(work.get_future().wait()[0][0].item()))
    thread.start()
    work.wait()
    thread.join()
    seen += [work.wait(), work.get_future().wait()[0][0].item(), work.is_success()]
    several = torch.futures.collect_all([work.get_future(), work.get_future()]).wait()
    seen.append(len(several))
    dist.destroy_process_group()
    return seen


def in_callbacks(store):
    """What callbacks of futures call comes after their call, on all ranks, however late a callback is called."""
    rank, world = meet(store)
    groups = everyone(world), everyone(world)
    sums = []
    for turn in range(20):
        first, second = torch.full((1000,), 1.0 + turn), torch.full((1000,), 100.0 + turn)
        if rank == turn % world:
            threading.Event().wait(0.002)  # which rank finds its call complete already, changes

        def then(reduced, turn=turn):
            inner = torch.full((1000,), 10_000.0 + turn)
            dist.all_reduce(inner, async_op=True).get_future().wait()
            dist.all_reduce(inner[:1], group=groups[0])
            return reduced.value()[0][:1] + inner[:1]

        chained = dist.all_reduce(first, async_op=True).get_future().then(then)
        dist.all_reduce(second)
        sums.append([chained.wait().item(), second[0].item()])
    work = dist.all_reduce(torch.ones(4), group=groups[0], async_op=True)
    dist.all_reduce(torch.ones(4), group=groups[1])
    work.wait()
    dist.destroy_process_group()
    return sums


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)))


def trained(hook, state=None, steps=6, **options):
    """By DDP: the digest of its parameters on all ranks, and the last loss."""
    model = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=SEVERAL_BUCKETS_MB, **options)
    if hook is not None:
        model.register_comm_hook(state, hook)
    torch.manual_seed(dist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(4, WIDTH)).square().mean()
        loss.backward()
        optimizer.step()
    own = torch.cat([each.detach().flatten() for each in model.parameters()])
    others = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(others, own)
    return [all(torch.equal(each, own) for each in others), own.abs().sum().item()]


def hooks(store):
    """PyTorch's own, of which several call collectives from callbacks."""
    _, world = meet(store)
    named = {
        "none": trained(None),
        "bucket views": trained(None, gradient_as_bucket_view=True),
        "static graph": trained(None, static_graph=True),
        "unused": trained(None, find_unused_parameters=True),
        "power": trained(
            powerSGD_hook.powerSGD_hook,
            powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=0.5),
        ),
        "local": trained(
            post_localSGD_hook.post_localSGD_hook,
            post_localSGD_hook.PostLocalSGDState(None, everyone(world), 3),
        ),
        "wrapped": trained(default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook), _power()),
        "noop": trained(debugging_hooks.noop_hook),
    }
    for hook in (
        default_hooks.allreduce_hook,
        default_hooks.fp16_compress_hook,
        default_hooks.bf16_compress_hook,
        quantization_hooks.quantization_pertensor_hook,
        quantization_hooks.quantization_perchannel_hook,
    ):
        named[hook.__name__] = trained(hook)
    dist.destroy_process_group()
    return named


def _power():
    return powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=0.5)


def hook_of_a_policy(store):
    """`ddp_hook`, whose last rank ends before a backward: what the others are told."""
    import hocket.torch as hk
    from hocket.policy.policy import Policy

    rank, world = meet(store)
    model = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=SEVERAL_BUCKETS_MB)
    model.register_comm_hook(None, hk.ddp_hook(Policy()))
    for step in range(3):
        loss = model(torch.ones(4, WIDTH)).sum()
        if step == 2 and rank == world - 1:
            os._exit(3)
        try:
            loss.backward()
        except RuntimeError as error:
            dist.destroy_process_group()
            return [[each.__name__ for each in type(error).__mro__], error.rank, error.why]
    return None


def forms(store):
    """Each form of a call that PyTorch's process groups take, on ours and on Gloo: by call, whether results are equal."""
    rank, world = meet(store)
    groups = dist.group.WORLD, dist.new_group(backend="gloo")
    minute, maximum = timedelta(seconds=60), dist.ReduceOp.MAX

    def given(at=0):
        return torch.arange(2.0 * world) + 10 * rank + at

    def calls(group):
        one, two, three, four, five, six = (given(at) for at in range(6))
        gathered, parts, named = ([torch.zeros(2 * world) for _ in range(world)] for _ in range(3))
        part, piece, whole = torch.zeros(2), torch.zeros(2), torch.zeros(2 * world)
        pieces = list(given().split(2))
        some = [2 * each for each in pieces]
        yield "allreduce of a list", group.allreduce([one], maximum), [one]
        yield "allreduce of a tensor", group.allreduce(two, dist.ReduceOp.MIN, minute), [two]
        yield "allreduce by names", group.allreduce(tensors=[three], op=maximum, timeout=minute), [three]
        yield "broadcast", group.broadcast(four, 1), [four]
        yield "reduce", group.reduce(five, root=0, op=maximum), [five] if rank == 0 else []
        yield "allgather", group.allgather(gathered, six, minute), gathered
        yield "gather", group.gather(parts if rank == 1 else [], six, 1), parts
        yield "scatter", group.scatter(part, pieces if rank == 0 else [], root=0), [part]
        yield "reduce_scatter", group.reduce_scatter(piece, some, maximum), [piece]
        yield "alltoall_base", group.alltoall_base(whole, six, [], [], minute), [whole]
        yield "by names", group.allgather(output_tensors=named, input_tensor=six), named
        yield "barrier", group.barrier(timeout=minute), []

    results = []
    for group in groups:
        for name, work, tensors in calls(group):
            work.wait()
            results.append((name, [each.tolist() for each in tensors]))
    half = len(results) // 2
    equal = {ours[0]: ours == gloos for ours, gloos in zip(results[:half], results[half:], strict=True)}
    wrong = [
        refusal(groups[0].allreduce),
        refusal(lambda: groups[0].allreduce(given(), maximum, minute, 1)),
        refusal(lambda: groups[0].broadcast(given(), source=1)),
    ]
    dist.destroy_process_group()
    return [equal, [kind for kind, _ in wrong]]


def abilities(store):
    _, _ = meet(store)
    group = dist.distributed_c10d._get_default_group()
    names = [name for name in dir(dist.ProcessGroup) if name.startswith("supports_")]
    answers = {name: getattr(group, name) for name in (*names, "supports_shrinking")}
    asked = [dist._supports_reconfigure(), dist._supports_window()]
    refused = [refusal(dist._get_reconfigure_handle), refusal(lambda: group.reconfigure(None))]
    dist.destroy_process_group()
    return [answers, asked, refused]


def compiled(store):
    """`torch.compile` of a DDP model: how often it trained."""
    meet(store)
    model = torch.nn.parallel.DistributedDataParallel(network())
    fast = torch.compile(model, backend="eager")
    norms = []
    for _ in range(2):
        model.zero_grad()
        fast(torch.ones(2, WIDTH)).sum().backward()
        norms.append(sum(each.grad.norm().item() for each in model.parameters()))
    dist.destroy_process_group()
    return norms


def refusal(act):
    try:
        act()
    except (RuntimeError, TypeError) as error:
        return [type(error).__name__, str(error)]
    raise AssertionError("nothing was refused")
