"""`gradients` and `mean`: two calls into Hocket per leaf, inside a compiled function.

The first gives the gradient as soon as it is ready. The second takes the mean back. XLA may execute a function's calls one after
the other and await each, so no second call may come before all first ones, on whose results each depends.

The mean has memory of its own: when it had the gradient's memory, XLA copied gradients that the function needed for both calls,
or made them twice. The mean may well lie in memory of a gradient that was given before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from hocket import _native, extras
from hocket.errors import UsageError
from hocket.jax.distribute import Found, distributed

GIVE, TAKE_BACK = "hocket_give", "hocket_take_back"


@dataclass
class Tracing:
    """Function that is being traced: its turn, as it sees it, and whether it has called `mean`."""

    of: Found
    turn: Any
    called: bool = field(default=False)


_tracing: ContextVar[Tracing] = ContextVar("hocket.jax.tracing")


def gradients(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a function that makes gradients and calls `mean` on them, with `jax.jit`, whose `options` it takes.

    Every rank calls it the same number of times. Calls return at once, as those of compiled functions do.

    Raises, when the function is called: UsageError, nothing is distributed. PeerError: the job has failed before. Failures in the
    call itself are raised as `jax.errors.JaxRuntimeError` where its results are used, with the rank that is to blame.

    >>> import jax.numpy as jnp
    >>> from hocket.jax import distribute
    >>> params = distribute(jnp.ones(3))
    >>> gradients(lambda params: mean(jax.grad(jnp.sum)(params)))(params).tolist()
    [1.0, 1.0, 1.0]
    """
    if function is None:
        return functools.partial(gradients, **options)
    compiled = functools.lru_cache(maxsize=1)(functools.partial(_compiled, function, options))

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        found = distributed()
        with found.session.execution() as turn:
            return compiled(found)(*arguments, hocket_turn=np.uint32(turn), **named)

    return call


def _compiled(function: Callable[..., Any], options: dict[str, Any], found: Found) -> Callable[..., Any]:
    """Compile a function for the parameters that are distributed now: later ones have other numbers."""

    def traced(*arguments: Any, hocket_turn: Any, **named: Any) -> Any:
        with _traced(Tracing(found, hocket_turn)):
            return function(*arguments, **named)

    traced.__name__ = getattr(function, "__name__", "gradients")
    return jax.jit(traced, **options)  # type: ignore[no-any-return]


@contextmanager
def _traced(state: Tracing) -> Iterator[None]:
    before = _tracing.set(state)
    try:
        yield
        if not state.called:
            raise UsageError(
                "the function does not call hk.mean, for which the other ranks would wait\nhint: return hk.mean(grads)"
            )
    finally:
        _tracing.reset(before)


def mean(gradients: Any) -> Any:
    """Return the means of these gradients over all ranks: the same bits on each.

    Args:
        gradients: gradients of all parameters that were distributed, as the same tree. Once in a function that `gradients`
            compiles, not in a loop or branch of it.

    Raises:
        UsageError: another tree, a second call, one outside of such a function, or under `jax.vmap`, `jax.grad` and the like.
    """
    state = _tracing.get(None)
    if state is None:
        raise UsageError(
            "hk.mean is called outside of a function that hk.gradients compiles\nhint: @hk.gradients above the function"
        )
    if state.called:
        raise UsageError(
            "the function calls hk.mean twice, and each gradient is reduced once a step\n"
            "hint: one hk.mean of all gradients, after they are added up"
        )
    state.called = True
    leaves = state.of.model
    given, treedef = jax.tree_util.tree_flatten(gradients)
    if treedef != leaves.treedef:
        raise UsageError(f"gradients of another tree than was distributed: {treedef}, not {leaves.treedef}")
    travel = []
    of_tree = slice(leaves.count)
    for name, parameter, trained, own in zip(
        leaves.names[of_tree], leaves.arrays[of_tree], leaves.trained[of_tree], given, strict=True
    ):
        if trained and (own.shape, own.dtype) != (parameter.shape, parameter.dtype):
            raise UsageError(
                f"the gradient of `{name}` is {list(own.shape)} of {own.dtype}, and the parameter that was distributed "
                f"{list(parameter.shape)} of {parameter.dtype}"
            )
        if trained:
            travel.append(own)
    means = iter(_means(state.of.session.group.number)(state.turn, *travel))
    results = [
        next(means) if trained else own for trained, own in zip(leaves.trained[of_tree], given, strict=True)
    ]
    return jax.tree_util.tree_unflatten(treedef, results)


def all_reduce_gradients() -> Any:
    """Return an `optax.GradientTransformation` whose updates are `mean` of the gradients, for functions that `gradients` compiles
    and that contain the optimizer, too: `optax.chain(hk.all_reduce_gradients(), optax.adam(1e-3))`.

    Raises MissingExtraError when optax is not installed.
    """
    extras.need("optax", "hocket.jax.all_reduce_gradients")
    import optax  # noqa: PLC0415  # only here

    return optax.stateless(lambda updates, _: mean(updates))


@functools.cache
def _register() -> None:
    for target, handler in zip((GIVE, TAKE_BACK), _native.xla_handlers(), strict=True):
        jax.ffi.register_ffi_target(target, handler, platform="cpu")


def _means(group: int) -> Callable[..., Sequence[Any]]:
    """Return a function from a turn and all leaves that travel to their means."""
    _register()

    def reduce(turn: Any, *gradients: Any) -> Sequence[Any]:
        token = jax.ShapeDtypeStruct((), np.uint32)
        give = jax.ffi.ffi_call(GIVE, token)
        numbers = [{"group": np.int64(group), "leaf": np.int64(leaf)} for leaf in range(len(gradients))]
        tokens = [give(own, turn, **number) for own, number in zip(gradients, numbers, strict=True)]
        given = jax.numpy.sum(jax.numpy.stack(tokens), dtype=np.uint32)
        means = []
        for own, number in zip(gradients, numbers, strict=True):
            result = jax.ShapeDtypeStruct(own.shape, own.dtype)
            means.append(jax.ffi.ffi_call(TAKE_BACK, result)(turn, given, **number))
        return means

    def differentiate(_primals: Any, _tangents: Any) -> Any:
        raise UsageError(
            "hk.mean cannot be differentiated\nhint: reduce the gradients, not the loss: hk.mean(jax.grad(loss_of)(params))"
        )

    def batch(_size: int, _batched: Any, *_operands: Any) -> Any:
        raise UsageError(
            "hk.mean under jax.vmap would be reduced once for each element\nhint: vmap inside, hk.mean outside of it"
        )

    refusing = jax.custom_jvp(reduce)
    refusing.defjvp(differentiate)
    refusing = jax.custom_batching.custom_vmap(refusing)
    refusing.def_vmap(batch)
    return refusing  # type: ignore[no-any-return]
