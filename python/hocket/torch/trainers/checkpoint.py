"""Hocket's own state in a trainer's checkpoint that is a directory: a file of each rank, beside the trainer's files."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hocket.errors import UsageError
from hocket.torch.checkpoint import load_state_dict, optimizer_state, state_dict
from hocket.torch.in_training import distributed_of, rank

log = logging.getLogger("hocket.checkpoint")


def save(models: Sequence[torch.nn.Module], directory: Path) -> None:
    """Save what goes on beside the models and their optimizers; all ranks call it, after a step."""
    if models:
        torch.save([state_dict(each) for each in models], directory / _name(rank(models[0])))


def load(models: Sequence[torch.nn.Module], directory: Path) -> None:
    """Go on from what `save` saved, once models and optimizers have their state; all ranks call it. A rank without a file takes
    rank 0's, as in a job of more ranks than before. A checkpoint from before Hocket has no files: the models go on with nothing.

    UsageError: some ranks find files and others do not, or the files are of other models.
    """
    if not models:
        return
    own, first = directory / _name(rank(models[0])), directory / _name(0)
    found = next((each for each in (own, first) if each.is_file()), None)
    missing = [at for at, there in enumerate(_of_all(found is not None)) if not there]
    if found is None:
        if len(missing) < _world():
            raise UsageError(
                f"{directory}: {own.name} and {first.name} are missing here (rank {rank(models[0])}), and other ranks have theirs\n"
                "hint: give all ranks the whole checkpoint"
            )
        log.warning(
            "%s has no state of Hocket's: what is kept beside model and optimizer begins anew", directory
        )
        return
    if missing:
        raise UsageError(
            f"{directory}: rank {missing[0]} finds no state of Hocket's, and rank {rank(models[0])} does\n"
            "hint: give all ranks the whole checkpoint"
        )
    saved = torch.load(found, weights_only=True)
    if not isinstance(saved, list) or len(saved) != len(models):
        raise UsageError(
            f"{found} is not of a job with {len(models)} distributed models\nhint: prepare the same models as then"
        )
    for model, state in zip(models, saved, strict=True):
        load_state_dict(model, state)


@contextlib.contextmanager
def whole_optimizers(models: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Body in which `state_dict()` of optimizers whose parameters have owners returns the whole state, on one rank alone, too; all
    ranks begin it."""
    divided = [each for each in models if distributed_of(each).session.owners]
    with contextlib.ExitStack() as undo:
        for model in divided:
            undo.enter_context(_whole(distributed_of(model).framework.optimizer, optimizer_state(model)))
        yield


@contextlib.contextmanager
def _whole(optimizer: Any, state: dict[str, Any]) -> Iterator[None]:
    before = optimizer.__dict__.get("state_dict")
    optimizer.state_dict = lambda: state
    try:
        yield
    finally:
        del optimizer.state_dict
        if before is not None:
            optimizer.state_dict = before


def _name(of: int) -> str:
    return f"hocket-{of}.pt"


def _world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _of_all(value: bool) -> list[bool]:
    """Return the values that all ranks give, by rank."""
    if _world() == 1:
        return [value]
    values: list[Any] = [None] * _world()
    dist.all_gather_object(values, value)
    return values
