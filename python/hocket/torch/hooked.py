"""Buffers that PyTorch's own data parallelism gives to a hook, DDP's buckets and the shards of FSDP2: each is copied to registered
memory, where a program of Hocket's reduces it, and back.

A buffer on a device is copied there to memory of Hocket's, whose twin is registered; its program is staged, as those of
`hk.distribute` are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
import torch.distributed as dist

from hocket.artefacts.promise import Promise
from hocket.errors import UsageError
from hocket.policy import bucketing
from hocket.policy.policy import Policy
from hocket.refusals import ABLE, DDP, ELASTIC, EPOCHS, GATES, GIVEN, TLS, TURNS, check_able, refused
from hocket.settings import Settings
from hocket.torch.devices import Accelerator, Landing, accelerator
from hocket.torch.dtypes import DTYPES
from hocket.torch.lent import tensor_over
from hocket.training.memory import buckets
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.device import made, read, received
from hocket.training.process import Process
from hocket.training.programs.among import Make

Kind = tuple[torch.device, torch.dtype, tuple[torch.Size, ...]]
"""What a bucket is made for: a buffer's device and type, and the shapes of its tensors."""
HANDLERS = ("on_timer", "on_worker_added", "on_worker_removed")
"""Handlers of a policy that only epochs call."""


def check_hook(of: str, policy: Policy | None, promise: Promise | None, settings: Settings) -> None:
    """Raise UsageError for what the hook `of` a data parallelism lacks: ranks that come and go, timers, gates, turns."""
    if settings.coordinator is not None:
        raise refused(ELASTIC, GIVEN, whose=of)
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
        self._made: dict[Hashable, tuple[Kind, LoadedBucket]] = {}
        self._devices: dict[torch.device, Accelerator | None] = {}

    def bucket(
        self, key: Hashable, buffer: torch.Tensor, shapes: Sequence[torch.Size], *, name: str, priority: int
    ) -> LoadedBucket:
        """Return Hocket's bucket for a buffer, a new one if its tensors are others than before. All ranks that reduce it call this.

        UsageError: programs lack its type, or PyTorch its device. PolicyError, ProgramError: its program is refused.
        """
        kind = buffer.device, buffer.dtype, tuple(shapes)
        known = self._made.get(key)
        if known is not None:
            if known[0] == kind:
                return known[1]
            self._process.libraries.forget(known[1].program)
            self._process.engine.unload(known[1].program)
            del self._made[key]
        bucket = self._load(buffer, shapes, name=name, priority=priority)
        self._made[key] = kind, bucket
        return bucket

    def launch(self, bucket: LoadedBucket, buffer: torch.Tensor) -> None:
        """Begin to reduce a buffer's elements of now. The last launch of the bucket is complete, and its means have landed."""
        device = self._of(buffer.device)
        if device is not None:
            # Those may still be copied out of the memory that this overwrites, by another stream.
            device.follow(bucket.memory)
        bucket.elements.copy_(buffer)
        made(device, [bucket.memory])
        self._process.engine.launch(bucket.program)
        self._process.libraries.expect([bucket.program])

    def land(self, bucket: LoadedBucket, buffer: torch.Tensor) -> None:
        """Copy the means of a launch that is complete into the buffer, as the calling thread's work."""
        device = self._of(buffer.device)
        received(device, [bucket.memory])
        buffer.copy_(bucket.elements)
        made(device, [bucket.memory])

    def landing(self, bucket: LoadedBucket, buffer: torch.Tensor) -> Landing | None:
        """Return what a work has of a buffer on a device that `land_aside` will fill; None: it is of the CPU."""
        device = self._of(buffer.device)
        return None if device is None else device.landing(bucket.memory, buffer)

    def land_aside(self, bucket: LoadedBucket, buffer: torch.Tensor, landing: Landing | None) -> None:
        """Copy the means into the buffer as `land` does, in any thread, beside the device's other work."""
        if landing is None:
            buffer.copy_(bucket.elements)
        else:
            landing.copy(buffer, bucket.elements)

    def _of(self, where: torch.device) -> Accelerator | None:
        if where not in self._devices:
            self._devices[where] = device = accelerator(where)
            self._process.lanes.serve(device)
        return self._devices[where]

    def _load(
        self, buffer: torch.Tensor, shapes: Sequence[torch.Size], *, name: str, priority: int
    ) -> LoadedBucket:
        dtype, process = buffer.dtype, self._process
        if dtype not in DTYPES:
            raise UsageError(f"{name} is {dtype}: programs have {', '.join(DTYPES.values())}")
        device = self._of(buffer.device)
        names = [name] if len(shapes) == 1 else [f"{name}.{order}" for order in range(len(shapes))]
        gradients = tuple(
            bucketing.Gradient(each, tuple(shape), DTYPES[dtype], order, order)
            for order, (each, shape) in enumerate(zip(names, shapes, strict=True))
        )
        compiled = self._make(bucketing.Bucket(gradients, priority), name)
        array = tensor_over if device is None else device.array
        bucket = buckets.load(
            [compiled], process.engine, array, epoch=0, rank=process.job.rank, label=name, device=device
        )[0]
        bucket.elements.copy_(buffer)
        read(device, [bucket.memory])
        buckets.start_states([bucket], process.engine)
        process.libraries.learn(bucket.program, bucket.launches[0].compiled.program)
        return bucket
