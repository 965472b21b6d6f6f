"""Buffers that PyTorch's own data parallelism gives to a hook, DDP's buckets and the shards of FSDP2: each is copied to registered
memory, where a program of Hocket's reduces it, and back."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
import torch.distributed as dist

from hocket.artefacts.promise import Promise
from hocket.errors import UsageError
from hocket.policy import bucketing
from hocket.policy.policy import Policy
from hocket.refusals import ABLE, DDP, EPOCHS, GATES, TLS, TURNS, check_able, refused
from hocket.settings import Settings
from hocket.torch.dtypes import DTYPES
from hocket.torch.lent import tensor_over
from hocket.training.memory import buckets
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.process import Process
from hocket.training.programs.among import Make

HANDLERS = ("on_timer", "on_worker_added", "on_worker_removed")
"""Handlers of a policy that only epochs call."""


def check_hook(of: str, policy: Policy | None, promise: Promise | None, settings: Settings) -> None:
    """Raise UsageError for what the hook `of` a data parallelism lacks: ranks that come and go, timers, gates, turns."""
    if settings.coordinator is not None:
        raise UsageError(
            f"HOCKET_COORDINATOR, but {of}'s ranks have their numbers from torch.distributed, and cannot come and go\n"
            f"hint: `hk.distribute` in place of {of}, or unset it"
        )
    asked = {
        EPOCHS: any(getattr(type(policy), each, None) is not getattr(Policy, each) for each in HANDLERS)
        and policy is not None,
        GATES: policy is not None and policy.gates,
        TURNS: (policy is not None and policy.contract == "none") or (promise is not None and promise.turns),
    }
    check_able(
        hook_of(of), ABLE - {"optimizer", "epochs"}, [(name, {}) for name, wanted in asked.items() if wanted]
    )


def check_ranks(process: Process, whose: str, sent: str) -> None:
    """Raise UsageError unless the ranks of `torch.distributed` are those of the job, and what they send beside Hocket may be in the
    clear. `sent`: that, of `whose` ranks."""
    if process.job.world != dist.get_world_size():
        raise UsageError(
            f"{whose} has {dist.get_world_size()} ranks, the job {process.job.world}: a hook is for all ranks of a job"
        )
    if dist.get_backend() != "hocket" and process.job.settings.tls:
        what = f"{whose} over {dist.get_backend()}, {sent},"
        raise refused(TLS, DDP, what=what, instead='torch.distributed.init_process_group("hocket")')


def hook_of(of: str) -> str:
    """Return the name of a data parallelism's hook in errors."""
    return f"{of}'s hook"


class Hooked:
    """Buffers of one hook, by key."""

    def __init__(self, process: Process, make: Make) -> None:
        """Begin without buffers. `make`: maker of their programs."""
        self._process, self._make = process, make
        self._made: dict[Hashable, tuple[torch.dtype, tuple[torch.Size, ...], LoadedBucket]] = {}

    def bucket(
        self, key: Hashable, buffer: torch.Tensor, shapes: Sequence[torch.Size], *, name: str, priority: int
    ) -> LoadedBucket:
        """Return Hocket's bucket for a buffer, a new one if its tensors are others than before. All ranks that reduce it call this.

        UsageError: it is of another device or type than programs have. PolicyError, ProgramError: its program is refused.
        """
        known = self._made.get(key)
        if known is not None:
            if known[:2] == (buffer.dtype, tuple(shapes)):
                return known[2]
            self._process.libraries.forget(known[2].program)
            self._process.engine.unload(known[2].program)
            del self._made[key]
        bucket = self._load(buffer, shapes, name=name, priority=priority)
        self._made[key] = buffer.dtype, tuple(shapes), bucket
        return bucket

    def launch(self, bucket: LoadedBucket, buffer: torch.Tensor) -> None:
        """Begin to reduce a buffer's elements of now. The last launch of the bucket is complete."""
        bucket.elements.copy_(buffer)
        self._process.engine.launch(bucket.program)
        self._process.libraries.expect([bucket.program])

    def _load(
        self, buffer: torch.Tensor, shapes: Sequence[torch.Size], *, name: str, priority: int
    ) -> LoadedBucket:
        dtype, process = buffer.dtype, self._process
        if dtype not in DTYPES or buffer.device.type != "cpu":
            raise UsageError(
                f"{name} is {dtype} on {buffer.device}: CPU and {', '.join(DTYPES.values())}\n"
                "hint: `hk.distribute` for models on a device, docs/gpus.md"
            )
        names = [name] if len(shapes) == 1 else [f"{name}.{order}" for order in range(len(shapes))]
        gradients = tuple(
            bucketing.Gradient(each, tuple(shape), DTYPES[dtype], order, order)
            for order, (each, shape) in enumerate(zip(names, shapes, strict=True))
        )
        made = self._make(bucketing.Bucket(gradients, priority), name)
        bucket = buckets.load(
            [made], process.engine, tensor_over, epoch=0, rank=process.job.rank, label=name
        )[0]
        bucket.elements.copy_(buffer)
        buckets.start_states([bucket], process.engine)
        process.libraries.learn(bucket.program, made.program)
        return bucket
