"""What ranks of `test_hsdp.py` do: hosts of two ranks, with FSDP2 inside each, and Hocket or PyTorch between them."""

import os
import signal
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

import hocket.torch as hk
from hocket.artefacts import files
from hocket.artefacts.plan import AllReduce, Plan
from hocket.errors import Error
from hocket.planning.buckets import plan_of
from hocket.policies import Int8, PartialF16, TopK
from hocket.policy.policy import Policy

LOCAL = 2
WIDTH = 13
STEPS = 4


def here(store, backend="gloo", local=LOCAL):
    """This rank and the mesh of (hosts, ranks of a host)."""
    rank, world = int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])
    os.environ["HOCKET_HOST"] = f"h{rank // local}"
    if not dist.is_initialized():
        dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=world)
    return rank, init_device_mesh("cpu", (world // local, local), mesh_dim_names=("replicate", "shard"))


class Network(nn.Module):
    """Blocks of sizes that two ranks share unevenly."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH + 1), nn.Tanh(), nn.Linear(2 * WIDTH + 1, WIDTH))
            for _ in range(3)
        )
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x, blocks=3):
        for block in list(self.blocks)[:blocks]:
            x = x + block(x)
        return self.head(x)


def sharded(mesh, *, units=True, **options):
    torch.manual_seed(0)
    model = Network()
    for block in model.blocks if units else ():
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def batch(rank, step):
    return torch.randn(6, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))


def plain(model, optimizer, rank, step):
    optimizer.zero_grad()
    model(batch(rank, step)).square().mean().backward()
    optimizer.step()


def clipped(model, optimizer, rank, step):
    optimizer.zero_grad()
    model(batch(rank, step)).square().sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()


def accumulated(model, optimizer, rank, step):
    """Two micro-steps that send nothing, and one that sends all."""
    optimizer.zero_grad()
    for micro in range(3):
        last = micro == 2
        model.set_requires_gradient_sync(last)
        model.set_is_last_backward(last)
        model(batch(rank, 10 * step + micro)).square().mean().backward()
    optimizer.step()


def shards_accumulated(model, optimizer, rank, step):
    """Micro-steps that reduce inside hosts alone."""
    optimizer.zero_grad()
    for micro in range(3):
        model.set_requires_all_reduce(micro == 2)
        model(batch(rank, 10 * step + micro)).square().mean().backward()
    optimizer.step()


def each_sent(model, optimizer, rank, step):
    """Micro-steps each of which sends: later ones are added to gradients that are there."""
    optimizer.zero_grad()
    for micro in range(2):
        model(batch(rank, 10 * step + micro)).square().mean().backward()
    optimizer.step()


def by_parts(model, optimizer, rank, step):
    """A block without gradients in some steps: its unit sends nothing."""
    optimizer.zero_grad()
    model(batch(rank, step), blocks=2 + step % 2).square().mean().backward()
    optimizer.step()


def summed(model, optimizer, rank, step):
    """Sums alone travel inside hosts, and are divided after the hook."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    plain(model, optimizer, rank, step)


def divided(model, optimizer, rank, step):
    """By a factor that is not the number of ranks."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(8.0)
    # Gloo knows no other way.
    summed(model, optimizer, rank, step)


def stepped_in_backward(model, optimizer, rank, step):
    """Gradients are used as soon as they are there."""
    if step == 0:
        model.rates = [
            each.register_post_accumulate_grad_hook(lambda own: own.data.add_(own.grad, alpha=-0.01))
            for each in model.parameters()
        ]
    model.zero_grad()
    model(batch(rank, step)).square().mean().backward()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


BF16 = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)}
REDUCED_IN_BF16 = {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)}
F32_OF_BF16 = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}

WAYS = {
    "AdamW": (plain, adamw, {}),
    "SGD": (plain, sgd, {}),
    "one unit": (plain, adamw, {"units": False}),
    "clipped": (clipped, sgd, {}),
    "accumulated": (accumulated, adamw, {}),
    "accumulated in shards": (shards_accumulated, sgd, {}),
    "each micro-step sent": (each_sent, sgd, {}),
    "blocks left out": (by_parts, sgd, {}),
    "divided by a factor": (divided, sgd, {}),
    "sums": (summed, sgd, {}),
    "stepped in backward": (stepped_in_backward, sgd, {}),
    "unsharded after forward": (plain, adamw, {"reshard_after_forward": False}),
    "bf16": (plain, adamw, BF16),
    "reduced in bf16": (plain, adamw, REDUCED_IN_BF16),
    "f32 of bf16": (plain, adamw, F32_OF_BF16),
}


def trained(model, way, optimizer, rank, steps=STEPS):
    for step in range(steps):
        way(model, optimizer, rank, step)
    return {name: each.full_tensor().detach() for name, each in model.state_dict().items()}


def apart(one, other):
    """The largest difference of two models."""
    return max(float((one[name].double() - each.double()).abs().max()) for name, each in other.items())


class ByGloo(Policy):
    """Means by a library, among the replicas of each shard alone."""

    def on_buffer_ready(self, cx, buffer):
        cx.all_reduce(buffer, op="mean", library="gloo")


def beside_native(store, backend="gloo", ways="", by=""):
    """By way: the largest difference from native HSDP after some steps, and how far the model moved. `by`: `library`, or none."""
    rank, mesh = here(store, backend)
    given = {"policy": ByGloo()} if by == "library" else {}
    found = {}
    for name in ways.split(",") if ways else WAYS:
        way, optimizer, options = WAYS[name]
        native, ours = sharded(mesh, **options), sharded(mesh["shard"], **options)
        replicas = hk.hsdp_hook(ours, **given)
        assert replicas.ranks == tuple(range(rank % LOCAL, dist.get_world_size(), LOCAL))
        start = trained(ours, way, None, rank, steps=0)
        wanted = trained(native, way, optimizer(native), rank)
        got = trained(ours, way, optimizer(ours), rank)
        found[name] = [apart(got, wanted), apart(got, start)]
    return found


def gradients_of(model):
    return torch.cat([each.grad.full_tensor().flatten() for each in model.parameters()])


def rounded(store, what):
    """The share of gradients that fit into f16, their distance from the exact ones, and whether all replicas have the same."""
    rank, mesh = here(store)
    exact, ours = sharded(mesh["shard"]), sharded(mesh["shard"])
    hk.hsdp_hook(exact, promise="exact")
    given = {"int8": {"policy": Int8()}, "f16": {"policy": PartialF16()}, "promise": {"promise": "rounded"}}[
        what
    ]
    hk.hsdp_hook(ours, **given)
    for model in (exact, ours):
        model(batch(rank, 0)).square().sum().backward()
    wanted, got = gradients_of(exact), gradients_of(ours)
    others = [torch.empty_like(got) for _ in range(dist.get_world_size())]
    dist.all_gather(others, got)
    return [
        float((got.half().float() == got).float().mean()),
        float((got - wanted).norm() / wanted.norm()),
        all(torch.equal(each, got) for each in others),
    ]


def one_rank_hosts(store):
    """The default plan's order of four replicas, one on each host."""
    rank, mesh = here(store, local=1)
    model = sharded(mesh["shard"])
    replicas = hk.hsdp_hook(model)
    trained(model, plain, sgd(model), rank, steps=1)
    return [list(bucket.order) for bucket in replicas.plan.buckets]


def planned(store, path):
    """Whether a plan that was written, and then changed, is followed; and what is wrong with other plans."""
    rank, mesh = here(store)
    native, first, again = sharded(mesh), sharded(mesh["shard"]), sharded(mesh["shard"])
    replicas = hk.hsdp_hook(first)
    early = refused(lambda: replicas.plan)
    wanted = trained(native, plain, adamw(native), rank)
    trained(first, plain, adamw(first), rank)
    made = replicas.plan
    if rank == 0:
        files.write(Path(path), made)
    dist.barrier()
    read = files.read(Path(path), Plan)
    changed = tuple(
        msgspec.structs.replace(each, route=AllReduce(algorithm="halving_doubling"), order=(1, 0))
        for each in read.buckets
    )
    followed = hk.hsdp_hook(again, plan=msgspec.structs.replace(read, buckets=changed))
    got = trained(again, plain, adamw(again), rank)
    algorithms = sorted({each.route.algorithm for each in followed.plan.buckets})
    return [read == made, algorithms, apart(got, wanted), early]


def saved(store, path):
    """The distance between a training and one that was saved half-way and resumed."""
    rank, mesh = here(store)
    through, before, after = (sharded(mesh["shard"]) for _ in range(3))
    for model in (through, before):
        hk.hsdp_hook(model)
    wanted = trained(through, plain, adamw(through), rank, steps=6)
    optimizer = adamw(before)
    trained(before, plain, optimizer, rank, steps=3)
    model_state, optimizer_state = get_state_dict(before, optimizer)
    assert all(isinstance(each, DTensor) for each in model_state.values())
    checkpoint.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=path)
    with torch.no_grad():
        for each in after.parameters():
            each.zero_()
    resumed = adamw(after)
    model_state, optimizer_state = get_state_dict(after, resumed)
    state = {"model": model_state, "optimizer": optimizer_state}
    checkpoint.load(state, checkpoint_id=path)
    set_state_dict(after, resumed, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    hk.hsdp_hook(after)
    for step in range(3, 6):
        plain(after, resumed, rank, step)
    return apart({name: each.full_tensor() for name, each in after.state_dict().items()}, wanted)


def refused(call):
    """Kind and text of the error that `call` raises."""
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


class Timed(Policy):
    """A policy with a timer, which epochs alone call."""

    def on_timer(self, cx):
        pass


def wrong(store):
    """By mistake, the error: those that one rank notices by itself, before others wait for it."""
    rank, mesh = here(store)
    model = sharded(mesh["shard"])
    said = {
        "not sharded": refused(lambda: hk.hsdp_hook(Network())),
        "promise": refused(lambda: hk.hsdp_hook(model, promise="exakt")),
        "merged": refused(lambda: hk.hsdp_hook(model, promise="merged")),
        "timer": refused(lambda: hk.hsdp_hook(model, policy=Timed())),
        "both": refused(lambda: hk.hsdp_hook(model, plan=plan_of([], 2, label=""), policy=PartialF16())),
        "less promised": refused(lambda: hk.hsdp_hook(model, promise="exact", policy=Int8())),
        "class": refused(lambda: hk.hsdp_hook(model, policy=TopK)),
    }
    with torch.device("meta"):
        empty = Network()
    fully_shard(empty, mesh=mesh["shard"])
    said["meta"] = refused(lambda: hk.hsdp_hook(empty))
    os.environ["HOCKET_COORDINATOR"] = "127.0.0.1:1"
    said["elastic"] = refused(lambda: hk.hsdp_hook(model))
    del os.environ["HOCKET_COORDINATOR"]
    hk.hsdp_hook(model)
    said["twice"] = refused(lambda: hk.hsdp_hook(model))
    begun = sharded(mesh["shard"])
    begun(batch(rank, 0)).sum().backward()
    said["begun"] = refused(lambda: hk.hsdp_hook(begun))
    return said


def wrong_together(store, mistake):
    """The error that all ranks get."""
    rank, mesh = here(store)
    model = sharded(mesh if mistake == "native" else mesh["shard"])
    given = {}
    if mistake == "one mesh":
        model = sharded(init_device_mesh("cpu", (dist.get_world_size(),)))
    elif mistake == "seed":
        with torch.no_grad():
            for each in model.head.parameters():
                each.add_(rank // LOCAL)
    elif mistake == "arguments":
        given["promise"] = "rounded" if rank else "exact"
    return refused(lambda: begin(model, given, rank))


def begin(model, given, rank):
    hk.hsdp_hook(model, **given)
    trained(model, plain, sgd(model), rank, steps=1)


def lost(store, backend):
    """A rank is killed between two steps: who is named, and why, on the others."""
    rank, mesh = here(store, backend)
    model = sharded(mesh["shard"])
    hk.hsdp_hook(model)
    optimizer = sgd(model)
    for step in range(1000):
        if rank == 3 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            plain(model, optimizer, rank, step)
        except RuntimeError as error:
            return ended(error)
        except Error as error:
            return ended(error)
    return None


def ended(error):
    if dist.get_backend() == "hocket":
        dist.destroy_process_group()
    else:
        # A group of Gloo waits for ranks that are gone.
        dist.distributed_c10d._world.pg_map.clear()
        dist.GroupMember.WORLD = None
    return [type(error).__name__, getattr(error, "rank", None), str(error)]


def out_of_step(store):
    """The ranks of one host skip a block: what all are told."""
    rank, mesh = here(store)
    model = sharded(mesh["shard"])
    hk.hsdp_hook(model)
    optimizer = sgd(model)
    plain(model, optimizer, rank, 0)
    try:
        model(batch(rank, 1), blocks=3 - rank // LOCAL).square().mean().backward()
    except Error as error:
        return [type(error).__name__, list(error.missing), str(error)]
    return None
