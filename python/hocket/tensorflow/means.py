"""`mean`: three kinds of calls into Hocket, in the graph that makes the gradients.

The first asks for the turn of the execution. The second, one for each gradient, copies it as soon as it is ready. The third takes
all means back. It depends on all calls of the second kind, and blocks a thread: this rank has then launched everything.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hocket.errors import UsageError
from hocket.tensorflow.distribute import Found, distributed

BEGIN, GIVE, TAKE_BACK = "HocketBegin", "HocketGive", "HocketTakeBack"


def mean(gradients: Any) -> Any:
    """Return the means of these gradients over all ranks: the same bits on each.

    Every rank calls this equally often. In a `tf.function`, gradients leave as backward makes them; outside of one they leave
    together, at the call.

    Args:
        gradients: gradients of all variables that train together, in their order: a list or another structure. An
            `IndexedSlices` is made dense, with a warning.

    Raises:
        UsageError: the gradients are not those of the variables, or one is None.
        tf.errors.AbortedError, when it is executed: a rank is lost, or the job has failed before. The text names the rank.
        tf.errors.DeadlineExceededError: not all ranks called `mean` in time.

    >>> import tensorflow as tf
    >>> from hocket.tensorflow import distribute
    >>> weights = distribute([tf.Variable([1.0, 2.0])])
    >>> mean([tf.constant([3.0, 4.0])])[0].numpy().tolist()
    [3.0, 4.0]
    """
    found = distributed()
    given = tf.nest.flatten(gradients)
    if len(given) != len(found.model.trained):
        raise UsageError(
            f"hk.mean got {len(given)} gradients, and {len(found.model.trained)} variables train together\n"
            "hint: those of all variables, in the order in which they were distributed"
        )
    return tf.nest.pack_sequence_as(gradients, means(found, given))


def mean_of(gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Return means of gradients of all variables that train together, in any order: `variables` are theirs."""
    found = distributed()
    leaves = [found.model.leaf(variable) for variable in variables]
    if sorted(leaves) != list(range(len(found.model.trained))):
        missing = next((leaf for leaf in range(len(found.model.trained)) if leaf not in leaves), None)
        what = (
            "a variable comes twice"
            if missing is None
            else f"that of `{found.model.gradient(missing)[0]}` is missing"
        )
        raise UsageError(
            f"each gradient is reduced once in a step, and {what}\nhint: the gradients of all variables that were distributed"
        )
    ordered = sorted(zip(leaves, gradients, strict=True), key=lambda each: each[0])
    results = means(found, [gradient for _, gradient in ordered])
    return [results[leaf] for leaf in leaves]


def means(found: Found, gradients: Sequence[Any]) -> list[Any]:
    """Return means, by leaf, of gradients by leaf."""
    dense = [_dense(*found.model.gradient(leaf), own) for leaf, own in enumerate(gradients)]
    number = found.session.group.number
    if tf.executing_eagerly():
        return list(_eagerly(number, dense))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def reduced(*own: Any) -> Any:
        return tuple(_in_graph(number, own)), _differentiate

    # A tape does not see ops that are made without TensorFlow's wrappers: without this, it would silently find no gradient.
    return list(reduced(*dense))


def _dense(name: str, variable: Any, own: Any) -> Any:
    if own is None:
        raise UsageError(
            f"there is no gradient of `{name}`: the loss does not depend on it, and the other ranks would wait for it\n"
            "hint: distribute the variables that are trained alone, or make it zero: "
            "tape.gradient(…, unconnected_gradients='zero')"
        )
    if isinstance(own, tf.IndexedSlices):
        warnings.warn(
            f"the gradient of `{name}` is of some rows, and is made dense: all {variable.shape[0]} rows travel",
            stacklevel=2,
        )
    own = tf.convert_to_tensor(own)
    if own.dtype != variable.dtype or not own.shape.is_compatible_with(variable.shape):
        raise UsageError(
            f"the gradient of `{name}` is {own.shape} of {own.dtype.name}, and the variable that was distributed "
            f"{variable.shape} of {variable.dtype.name}"
        )
    return own


@tf.function(autograph=False)  # type: ignore[untyped-decorator]
def _eagerly(number: int, gradients: Sequence[Any]) -> list[Any]:
    """Reduce eagerly; TensorFlow makes one graph for each number."""
    return _in_graph(number, gradients)


def _in_graph(number: int, gradients: Sequence[Any]) -> list[Any]:
    """Add the ops to the graph. TensorFlow finds them by name in its registry, so they need no generated wrappers."""
    graph = tf.compat.v1.get_default_graph()
    group = tf.compat.v1.AttrValue(i=number)
    with tf.name_scope("hocket"), tf.device("/CPU:0"):
        turn = graph.create_op(BEGIN, [], [tf.uint32], attrs={"group": group}).outputs[0]
        tokens = [
            graph.create_op(
                GIVE,
                [own, turn],
                [tf.uint32],
                attrs={
                    "T": tf.compat.v1.AttrValue(type=own.dtype.as_datatype_enum),
                    "group": group,
                    "leaf": tf.compat.v1.AttrValue(i=leaf),
                },
            ).outputs[0]
            for leaf, own in enumerate(gradients)
        ]
        dtypes = [own.dtype for own in gradients]
        types = tf.compat.v1.AttrValue.ListValue(type=[each.as_datatype_enum for each in dtypes])
        taken = graph.create_op(
            TAKE_BACK,
            [*gradients, *tokens, turn],
            dtypes,
            attrs={
                "T": tf.compat.v1.AttrValue(list=types),
                "N": tf.compat.v1.AttrValue(i=len(tokens)),
                "group": group,
            },
        )
        return list(taken.outputs)


@tf.RegisterGradient(TAKE_BACK)  # type: ignore[untyped-decorator]
def _differentiate(*_: Any) -> Any:
    raise UsageError(
        "hk.mean cannot be differentiated\nhint: reduce the gradients, not the loss: hk.mean(tape.gradient(loss, variables))"
    )
