"""Policies under PyTorch's own DDP, as its communication hook: DDP keeps its buckets and its loop, Hocket moves the bytes.

    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(None, hocket.torch.ddp_hook(policy))

The hook lacks the rest of `distribute`: DDP's buckets are copied to registered memory and back, and there are no epochs, so a
policy has no timer and cannot use statistics.
"""
# DDP compares the hook's annotations with its types: they must not be postponed to strings.

from collections.abc import Callable

import torch
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

from hocket.policy.policy import Policy
from hocket.settings import Settings
from hocket.torch.backend.tasks import Task
from hocket.torch.hooked import Hooked, check_hook, check_ranks, hook_of
from hocket.torch.rendezvous import publish
from hocket.training.assemble.asked import promise_asked
from hocket.training.process import Process, joined
from hocket.training.programs.among import Among, by_policy

Hook = Callable[[object, GradBucket], Future[torch.Tensor]]


def ddp_hook(policy: Policy) -> Hook:
    """Make the hook for `DistributedDataParallel.register_comm_hook`; every rank must make it.

    Raises:
        PolicyError: the policy is refused, with its line.
        UsageError: the policy or a promise needs something that DDP lacks (a timer, gates, statistics), or the ranks of
            DDP are not those of the job.
    """
    settings = Settings.from_environment()
    check_hook("DDP", policy, promise_asked(None, settings), settings)
    process = joined(settings, publish)
    check_ranks(process, "DDP", "parameters and buffers")
    # A method, not a callable object: DDP reads its `__name__`.
    return _Buckets(policy, process).reduce


class _Buckets:
    def __init__(self, policy: Policy, process: Process) -> None:
        self._process = process
        ranks = tuple(range(process.job.world))
        self._hooked = Hooked(process, by_policy(policy, Among(process, ranks, hook_of("DDP"))))
        self._timeout_s = process.job.settings.timeout_s

    def reduce(self, _state: object, bucket: GradBucket) -> Future[torch.Tensor]:
        """Reduce a bucket; DDP calls this when a bucket is ready, in the same order on all ranks."""
        at, buffer = bucket.index(), bucket.buffer()
        # DDP rebuilds its buckets after the first step, when it knows the gradients' order.
        shapes = [each.shape for each in bucket.gradients()]
        own = self._hooked.bucket(at, buffer, shapes, name=f"DDP's bucket {at}", priority=at)
        self._hooked.launch(own, buffer)
        landing = self._hooked.landing(own, buffer)
        task = Task([buffer], landing=landing)

        def end(error: Exception | None) -> None:
            try:
                if error is None:
                    self._hooked.land_aside(own, buffer, landing)
            except Exception as failure:
                # A device's: backward waits for this task, and raises what it has.
                error = failure
            task.finish(failure=error)

        self._process.engine.on_complete(own.program, end, self._timeout_s)
        return task.get_future().then(_first)


def _first(reduced: Future[list[torch.Tensor]]) -> torch.Tensor:
    return reduced.value()[0]
