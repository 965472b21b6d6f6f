"""Description of a model for training: names, shapes and element types, and a check that all ranks have the same model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from hocket import typed
from hocket.artefacts.gradient import Gradient
from hocket.errors import RendezvousError
from hocket.job.rendezvous import Job

DTYPES = ("f64", "f32", "f16", "bf16")
"""Element types of gradients."""

COMPLEX = {"f64": "c128", "f32": "c64", "f16": "c32"}
"""Element types of complex numbers, by that of their parts; no program has complex types."""


class Pairs(Gradient, frozen=True, kw_only=True):
    """Gradient of complex numbers, which travels as pairs of real numbers: its last axis is that of a pair."""

    @property
    def as_array(self) -> tuple[str, tuple[int, ...]]:
        """Element type and shape as complex numbers."""
        return COMPLEX[self.dtype], self.shape[:-1]


class Parameter(Struct, frozen=True, kw_only=True):
    """Parameter or buffer of a model; `trained`: it gets a gradient, which ranks reduce; `sparse`: a gradient of the rows that a
    batch touched, if nothing else uses the parameter; `pairs`: its numbers are complex, and shape and dtype are those of pairs;
    `staged`: its gradient lies on a device, and programs copy it."""

    kind: Literal["parameter", "buffer"] = "parameter"
    name: str
    shape: tuple[int, ...]
    dtype: str
    trained: bool = True
    sparse: bool = False
    pairs: bool = False
    staged: bool = False

    def __str__(self) -> str:
        """Return a description for people."""
        frozen = ", frozen" if self.kind == "parameter" and not self.trained else ""
        sparse = ", with a sparse gradient" if self.sparse else ""
        shape, dtype = (self.shape[:-1], COMPLEX[self.dtype]) if self.pairs else (self.shape, self.dtype)
        staged = ", on a device" if self.staged else ""
        return f"{list(shape)} of {dtype}{frozen}{sparse}{staged}"


def gradients_of(parameters: Iterable[Parameter]) -> dict[str, Gradient]:
    """Return the gradients of trained parameters by name, in the order of registration."""
    return {
        each.name: (Pairs if each.pairs else Gradient)(each.name, each.shape, each.dtype, sparse=each.sparse)
        for each in parameters
        if each.trained
    }


def digest_of(parameters: Sequence[Parameter]) -> str:
    """Return a digest that differs where models differ."""
    return hashlib.sha256(msgspec.json.encode(parameters)).hexdigest()


def agree(mine: Sequence[Parameter], job: Job) -> None:
    """Compare the models of all ranks; RendezvousError on every rank names the first parameter or buffer that differs."""
    digest, timeout_s = digest_of(mine), job.settings.start_timeout_s
    digests = job.store.gather("model/digest", job.rank, job.world, digest, timeout_s)
    if len(set(digests)) == 1:
        return
    models = job.store.gather("model/parts", job.rank, job.world, msgspec.to_builtins(mine), timeout_s)
    parsed = [typed.of_builtins(each, list[Parameter]) for each in models]
    other = next(rank for rank, each in enumerate(digests) if each != digests[0])
    raise RendezvousError(
        f"the models of rank 0 and rank {other} differ: {_difference(parsed[0], parsed[other], other)}\n"
        "hint: build the same model on every rank",
        rank=other,
        host=job.hosts[other],
    )


def _difference(first: list[Parameter], second: list[Parameter], rank: int) -> str:
    for ours, theirs in zip(first, second, strict=False):
        if ours.name != theirs.name:
            return f"where rank 0 has the {ours.kind} `{ours.name}`, rank {rank} has the {theirs.kind} `{theirs.name}`"
        if ours != theirs:
            return f"`{ours.name}` is {ours} on rank 0 and {theirs} on rank {rank}"
    more, where = (first, 0) if len(first) > len(second) else (second, rank)
    extra = more[min(len(first), len(second))]
    return f"only rank {where} has the {extra.kind} `{extra.name}`, {extra}"
