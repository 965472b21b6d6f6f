"""The gradients of a model as Hocket names them, and whether all ranks have the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Struct

import torch
from hocket.errors import RendezvousError, UsageError
from hocket.launch.rendezvous import Job

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}


class Part(Struct, frozen=True, kw_only=True):
    """What ranks must agree on about a parameter or a buffer."""

    kind: Literal["parameter", "buffer"]
    name: str
    shape: tuple[int, ...]
    dtype: str
    trained: bool

    def __str__(self) -> str:
        """For people."""
        frozen = ", frozen" if self.kind == "parameter" and not self.trained else ""
        return f"{list(self.shape)} of {self.dtype}{frozen}"


def trained(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Parameters whose gradients are communicated, in registration order; shared ones once."""
    found = {name: each for name, each in model.named_parameters() if each.requires_grad}
    if not found:
        raise UsageError("the model has no parameters that require gradients: there is nothing to distribute")
    for name, each in found.items():
        if each.device.type != "cpu":
            raise UsageError(f"parameter `{name}` is on {each.device}: Hocket moves gradients in CPU memory")
        if each.dtype not in DTYPES:
            raise UsageError(
                f"parameter `{name}` has dtype {each.dtype}: known are {', '.join(map(str, DTYPES))}"
            )
    return found


def agree(model: torch.nn.Module, job: Job) -> None:
    """Compare the models of all ranks; RendezvousError on every rank names the first parameter or buffer that differs."""
    mine = list(_parts(model))
    text = msgspec.json.encode(mine)
    digest = hashlib.sha256(text).hexdigest()
    timeout_s = job.settings.start_timeout_s
    digests = job.store.gather("model/digest", job.rank, job.world, digest, timeout_s)
    if len(set(digests)) == 1:
        return
    models = job.store.gather("model/parts", job.rank, job.world, msgspec.to_builtins(mine), timeout_s)
    parsed = [msgspec.convert(each, list[Part]) for each in models]
    other = next(rank for rank, each in enumerate(digests) if each != digests[0])
    raise RendezvousError(
        f"the models of rank 0 and rank {other} differ: {_difference(parsed[0], parsed[other], other)}\n"
        "hint: build the same model on every rank",
        rank=other,
        host=job.hosts[other],
    )


def _parts(model: torch.nn.Module) -> Iterator[Part]:
    kinds: tuple[tuple[Literal["parameter", "buffer"], Iterator[tuple[str, torch.Tensor]]], ...] = (
        ("parameter", model.named_parameters()),
        ("buffer", model.named_buffers()),
    )
    for kind, named in kinds:
        for name, each in named:
            dtype = DTYPES.get(each.dtype, str(each.dtype))
            yield Part(kind=kind, name=name, shape=tuple(each.shape), dtype=dtype, trained=each.requires_grad)


def _difference(first: list[Part], second: list[Part], rank: int) -> str:
    for ours, theirs in zip(first, second, strict=False):
        if ours.name != theirs.name:
            return f"where rank 0 has the {ours.kind} `{ours.name}`, rank {rank} has the {theirs.kind} `{theirs.name}`"
        if ours != theirs:
            return f"`{ours.name}` is {ours} on rank 0 and {theirs} on rank {rank}"
    more, where = (first, 0) if len(first) > len(second) else (second, rank)
    extra = more[min(len(first), len(second))]
    return f"only rank {where} has the {extra.kind} `{extra.name}`, {extra}"
