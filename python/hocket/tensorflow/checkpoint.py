"""`state_dict` and `load_state_dict`: Hocket's part of a checkpoint, beside the script's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from hocket.tensorflow.distribute import distributed
from hocket.training.checkpoint.saved import plain, read_back


def state_dict() -> dict[str, Any]:
    """Return what a checkpoint needs beside variables, so that training goes on with equal bits.

    Each rank has its own state: that of policies, such as residuals of error feedback and PowerSGD's factors. All ranks call this
    between the same two steps, and each keeps its own file. The state is NumPy arrays of bytes (a row for each element) and
    plain data, for `pickle` or msgpack.

    Values that a policy's timers agreed on are not in it.

    Raises: UsageError, nothing is distributed. PeerError, the job has failed.

    >>> import tensorflow as tf
    >>> from hocket.tensorflow import distribute
    >>> weights = distribute([tf.Variable([1.0, 2.0])])
    >>> state_dict()["rank"]
    0
    """
    return plain(distributed().session.saved(), np.asarray)  # type: ignore[no-any-return]


def load_state_dict(state: Mapping[str, Any], *, strict: bool = True) -> None:
    """Go on from what `state_dict` returned on this rank. All ranks call it after `distribute`, before their first step.

    State of policies is by variable: it goes on with other buckets and with another number of ranks. A rank without a file gives
    rank 0's: it gets what all ranks have in common, and its own residuals begin at zero.

    Args:
        state: what `state_dict` returned.
        strict: raise if state of a variable is missing, or no variable uses it; False: what is missing starts anew.

    Raises UsageError when the state is of another moment on some rank, or nothing that `state_dict` returned, or a step has begun.

    >>> import tensorflow as tf
    >>> from hocket.tensorflow import distribute
    >>> weights = distribute([tf.Variable([1.0, 2.0])])
    >>> load_state_dict(state_dict())
    """
    distributed().session.restore(read_back(state, _array), strict=strict)


def _array(leaf: Any) -> Any:
    return leaf.numpy() if isinstance(leaf, tf.Tensor) else leaf
