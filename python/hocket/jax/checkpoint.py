"""`state_dict` and `load_state_dict`: Hocket's part of a checkpoint, beside the script's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from hocket.jax.distribute import distributed
from hocket.training.checkpoint.saved import plain, read_back


def state_dict() -> dict[str, Any]:
    """Return what a checkpoint needs beside parameters and the optimizer's state, so that training goes on with equal bits.

    Each rank has its own state: that of policies, such as residuals of error feedback and PowerSGD's factors. All ranks call this
    between the same two calls of a function that `gradients` compiles, and each keeps its own file. The call waits for means on
    their way. The state is NumPy arrays of bytes (a row for each element) and plain data, for `pickle`, msgpack or Orbax.

    Values that a policy's timers agreed on are not in it.

    Raises: UsageError, nothing is distributed. PeerError, the job has failed.

    >>> import jax.numpy as jnp
    >>> from hocket.jax import distribute
    >>> params = distribute(jnp.ones(3))
    >>> state_dict()["rank"]
    0
    """
    return plain(distributed().session.saved(), np.asarray)  # type: ignore[no-any-return]


def load_state_dict(state: Mapping[str, Any], *, strict: bool = True) -> None:
    """Go on from what `state_dict` returned on this rank. All ranks call it after `distribute`, before their first step.

    State of policies is by parameter: it goes on with other buckets and with another number of ranks. A rank without a file gives
    rank 0's: it gets what all ranks have in common, and its own residuals begin at zero.

    Args:
        state: what `state_dict` returned; its arrays may be of JAX or of NumPy.
        strict: raise if state of a parameter is missing, or no parameter uses it; False: what is missing starts anew.

    Raises UsageError when the state is of another moment on some rank, or nothing that `state_dict` returned, or a step has begun.

    >>> import jax.numpy as jnp
    >>> from hocket.jax import distribute
    >>> params = distribute(jnp.ones(3))
    >>> load_state_dict(state_dict())
    """
    distributed().session.restore(read_back(state, _array), strict=strict)


def _array(leaf: Any) -> Any:
    return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf
