"""`DistributedGradientTape`: a tape whose gradients are means, as scripts that come from Horovod use it."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import tensorflow as tf

from hocket.tensorflow.means import mean_of


class DistributedGradientTape:
    """Wrapper of a `tf.GradientTape`; everything but `gradient` is the tape's own.

    >>> import tensorflow as tf
    >>> from hocket.tensorflow import distribute
    >>> weights = distribute([tf.Variable([1.0, 2.0])])
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(weights[0] ** 2)
    >>> DistributedGradientTape(tape).gradient(loss, weights)[0].numpy().tolist()
    [2.0, 4.0]
    """

    def __init__(self, tape: tf.GradientTape) -> None:
        """Wrap `tape`, before, while or after it records."""
        self._tape = tape

    def gradient(self, target: Any, sources: Any, *arguments: Any, **named: Any) -> Any:
        """Return the tape's gradients as means over all ranks, as `hocket.tensorflow.mean` makes them.

        `sources`: all variables that train together, in any order.
        """
        gradients = self._tape.gradient(target, sources, *arguments, **named)
        flat = tf.nest.flatten(sources)
        # The structure is that of the sources, whatever a gradient is.
        given = [gradients] if flat and sources is flat[0] else tf.nest.flatten(gradients)
        return tf.nest.pack_sequence_as(sources, mean_of(given, flat))

    def __enter__(self) -> DistributedGradientTape:
        """Begin to record."""
        self._tape.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End recording."""
        self._tape.__exit__(kind, value, trace)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the tape."""
        return getattr(self._tape, name)
