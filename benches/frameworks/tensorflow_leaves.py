"""A `tf.function` that only reduces leaves, and one that does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

import hocket.tensorflow as hk
from hocket.tensorflow.distribute import distributed


def reducing(values: Sequence[Any]) -> tuple[Callable[[], object], Callable[[], object], int]:
    """Make both functions, and return the number of buckets of the leaves."""
    variables = hk.distribute([tf.Variable(each) for each in values])
    reduce = tf.function(lambda: hk.mean([each + 1 for each in variables]))
    plain = tf.function(lambda: [each + 1 for each in variables])
    reduce()
    return reduce, plain, len(distributed().session.buckets)
