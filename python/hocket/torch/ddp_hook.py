"""Policies under PyTorch's own DDP, as its communication hook: DDP keeps its buckets and its loop, Hocket moves the bytes.

    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(None, hocket.torch.ddp_hook(policy))

The hook lacks the rest of `distribute`: DDP's buckets are copied to registered memory and back, and there are no epochs, so a
policy has no timer and cannot use statistics.
"""
# DDP compares the hook's annotations with its types: they must not be postponed to strings.

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

from hocket.errors import UsageError
from hocket.members.arrival import comes
from hocket.policy import bucketing
from hocket.policy.policy import Policy
from hocket.policy.topology import Topology
from hocket.policy.trace import TraceContext, bucket_program
from hocket.refusals import ABLE, DDP, EPOCHS, GATES, OBSERVED, TLS, TURNS, check_able, refused
from hocket.settings import Settings
from hocket.torch.backend.tasks import Task
from hocket.torch.dtypes import DTYPES
from hocket.torch.lent import tensor_over
from hocket.torch.rendezvous import publish
from hocket.training.assemble.choice import promise_asked
from hocket.training.memory import buckets
from hocket.training.memory.buckets import CompiledBucket, LoadedBucket
from hocket.training.process import Process, joined

HANDLERS = ("on_timer", "on_worker_added", "on_worker_removed")
"""Handlers of a policy that only epochs call."""

HOOK = "DDP's hook"

Hook = Callable[[object, GradBucket], Future[torch.Tensor]]


def ddp_hook(policy: Policy) -> Hook:
    """Make the hook for `DistributedDataParallel.register_comm_hook`; every rank must make it.

    Raises:
        PolicyError: the policy is refused, with its line.
        UsageError: the policy or a promise needs something that DDP lacks (a timer, gates, statistics), or the ranks of
            DDP are not those of the job.
    """
    settings = Settings.from_environment()
    if comes(settings):
        raise UsageError(
            "HOCKET_COORDINATOR, but DDP's ranks have their numbers from torch.distributed, and cannot come and go\n"
            "hint: `hk.distribute` in place of DDP, or unset it"
        )
    promise = promise_asked(None, settings)
    asked = {
        EPOCHS: any(getattr(type(policy), each) is not getattr(Policy, each) for each in HANDLERS),
        GATES: policy.gates,
        TURNS: policy.contract == "none" or (promise is not None and bool(promise.turns)),
    }
    check_able(HOOK, ABLE - {"optimizer", "epochs"}, [(name, {}) for name, wanted in asked.items() if wanted])
    # A method, not a callable object: DDP reads its `__name__`.
    return _Buckets(policy, joined(settings, publish)).reduce


class _Buckets:
    def __init__(self, policy: Policy, process: Process) -> None:
        if process.job.world != dist.get_world_size():
            raise UsageError(
                f"DDP has {dist.get_world_size()} ranks, the job {process.job.world}: a hook is for all ranks of a job"
            )
        if dist.get_backend() != "hocket" and process.job.settings.tls:
            what = f"DDP over {dist.get_backend()}, parameters and buffers,"
            raise refused(TLS, DDP, what=what, instead='torch.distributed.init_process_group("hocket")')
        self._policy, self._process = policy, process
        topology = Topology.of(process.job.hosts, process.measurements.cluster)
        self._context = TraceContext.of(policy, topology, tuning=process.measurements.tuning)
        self._timeout_s = process.job.settings.timeout_s
        self._made: dict[int, tuple[tuple[torch.Size, ...], LoadedBucket]] = {}

    def reduce(self, _state: object, bucket: GradBucket) -> Future[torch.Tensor]:
        """Reduce a bucket; DDP calls this when a bucket is ready, in the same order on all ranks."""
        own, buffer = self._bucket(bucket), bucket.buffer()
        own.elements.copy_(buffer)
        task = Task([buffer])

        def end(error: Exception | None) -> None:
            if error is None:
                buffer.copy_(own.elements)
            task.finish(failure=error)

        engine = self._process.engine
        engine.launch(own.program)
        self._process.libraries.expect([own.program])
        engine.on_complete(own.program, end, self._timeout_s)
        return task.get_future().then(_first)

    def _bucket(self, grads: GradBucket) -> LoadedBucket:
        """Return Hocket's bucket for one of DDP's, which DDP rebuilds after the first step, when it knows the gradients' order."""
        shapes = tuple(each.shape for each in grads.gradients())
        known = self._made.get(grads.index())
        if known is not None and known[0] == shapes:
            return known[1]
        if known is not None:
            self._process.libraries.forget(known[1].program)
            self._process.engine.unload(known[1].program)
        bucket = self._make(grads)
        self._made[grads.index()] = shapes, bucket
        return bucket

    def _make(self, grads: GradBucket) -> LoadedBucket:
        at, dtype = grads.index(), grads.buffer().dtype
        if dtype not in DTYPES or grads.buffer().device.type != "cpu":
            raise UsageError(
                f"DDP's bucket {at} is {dtype} on {grads.buffer().device}: CPU and {', '.join(DTYPES.values())}"
            )
        gradients = tuple(
            bucketing.Gradient(f"bucket{at}.{order}", tuple(each.shape), DTYPES[dtype], order, order)
            for order, each in enumerate(grads.gradients())
        )
        planned = bucketing.Bucket(gradients, at)
        traced = bucket_program(self._policy, planned, self._context, name=f"bucket.{at}")
        if traced.guards:
            check_able(HOOK, ABLE - {"epochs"}, [(OBSERVED, {})])
        made = CompiledBucket.traced(planned, traced)
        bucket = buckets.load(
            [made], self._process.engine, tensor_over, epoch=0, rank=self._process.job.rank
        )[0]
        bucket.elements.copy_(grads.buffer())
        buckets.start_states([bucket], self._process.engine)
        self._process.libraries.learn(bucket.program, traced.program)
        return bucket


def _first(reduced: Future[list[torch.Tensor]]) -> torch.Tensor:
    return reduced.value()[0]
