"""What a checkpoint of a distributed model takes from Hocket: `optimizer_state`, `state_dict` and `load_state_dict`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from hocket.errors import UsageError
from hocket.torch.in_training import distributed_of
from hocket.torch.lent import array_of
from hocket.training.checkpoint.saved import plain, read_back


def optimizer_state(model: torch.nn.Module) -> dict[str, Any]:
    """Return `optimizer.state_dict()` of a distributed model's optimizer, the same on all ranks. All ranks must call it: where
    owners update, each rank has only the state of what it owns. `optimizer.load_state_dict` takes it, whatever the plan is then.
    The state of parameters on servers is not in it."""
    found = distributed_of(model)
    session = found.session
    session.finish_step()
    if session.owners:
        if session.owners.in_join is not None:
            raise UsageError(
                "optimizer_state: within hk.join, ranks that have finished would have to call it, too\n"
                "hint: call it after the block"
            )
        return found.framework.division.state_dict(session.owners.whole())
    return found.framework.optimizer.state_dict()


def state_dict(model: torch.nn.Module) -> dict[str, Any]:
    """Return what a checkpoint needs beside the model's and the optimizer's state, so that training goes on with equal bits.

    Each rank has its own: state of policies (residuals of error feedback, PowerSGD's factors), gradients that are merged or on
    their way, and the place in a schedule. The places of `epochs` and `batches`, and what `extra_state` registers, are in it, too.
    All ranks call it at the same place, after a step, and each keeps its own file. It waits for gradients that are on their way and
    applies nothing. Tensors and plain data: `torch.load(file, weights_only=True)` reads it.

        torch.save({"model": model.state_dict(), "optimizer": hk.optimizer_state(model), "hocket": hk.state_dict(model)}, file)

    In an elastic job, it also waits until all ranks have the last step, so that a rank that is lost leaves no checkpoint from which
    the others have not gone on.

    What parameter servers hold, and values that a policy's timers agreed on, are not in it.

    Raises UsageError when the last backward's gradients wait for a step, or when another plan is about to begin.
    """
    found = distributed_of(model)
    state = plain(found.session.saved(), torch.from_numpy)
    loop, extra = found.loop.saved()
    return {**state, "loop": plain(loop, torch.from_numpy), "extra": extra}


def load_state_dict(model: torch.nn.Module, state: Mapping[str, Any], *, strict: bool = True) -> None:
    """Go on from what `state_dict` returned on this rank, after the model's and the optimizer's own state. All ranks call it.

    State of policies is by parameter: it goes on with other buckets and with another number of ranks. A rank without a file gives
    rank 0's: it gets what all ranks have in common, and its own residuals begin at zero. Gradients that were made and not applied
    go on with the same plan and ranks alone; `hk.flush(model)` before `state_dict` leaves none.

    Args:
        model: a distributed model, before its first backward.
        state: what `state_dict` returned.
        strict: raise if state of a parameter is missing, or no parameter uses it; False: what is missing starts anew.

    Raises UsageError when the state is of another moment on some rank, of another plan with gradients that are not applied, or
    nothing that `state_dict` returned.
    """

    def array(leaf: Any) -> Any:
        return array_of(leaf.detach().contiguous()) if isinstance(leaf, torch.Tensor) else leaf

    found = distributed_of(model)
    of_session = state
    if isinstance(state, Mapping):
        of_session = {name: each for name, each in state.items() if name not in ("loop", "extra")}
    found.session.restore(read_back(of_session, array), strict=strict)
    if "loop" in state or "extra" in state:
        found.loop.restore(state.get("loop"), state.get("extra"))
