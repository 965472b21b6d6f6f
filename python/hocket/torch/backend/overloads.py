"""Forms in which PyTorch's process groups take a call: lists of tensors with options, or one tensor and values of options.

Python has no overloads; these are those of `torch.distributed.ProcessGroup`, as its docstrings list them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

Method = Callable[..., Any]


class Leading(NamedTuple):
    """Argument in front of the options: its names in PyTorch, and how many lists are around a tensor where the method takes it."""

    names: tuple[str, ...]
    lists: int


_OUT, _IN = ("output_tensors", "output_tensor", "output"), ("input_tensors", "input_tensor", "input")
TENSORS = Leading(("tensors", "tensor"), 1)
OUTPUT, INPUT = Leading(_OUT, 0), Leading(_IN, 0)
OUTPUTS, INPUTS = Leading(_OUT, 1), Leading(_IN, 1)
LISTS_OUT, LISTS_IN = Leading(_OUT, 2), Leading(_IN, 2)
SPLITS_OUT, SPLITS_IN = Leading(("output_split_sizes",), 0), Leading(("input_split_sizes",), 0)

ROOT, OP = ("root", "rootRank"), ("op", "reduceOp")
"""Names of arguments behind the leading ones, and of the attributes of options that they set."""
TIMEOUT = ("timeout", "timeout")


def overloaded(
    options: Callable[[], Any], leading: Sequence[Leading] = (), *values: tuple[str, str]
) -> Callable[[Method], Method]:
    """Return a decorator of a method of the leading arguments and options, which lets it take all of PyTorch's forms. `values`:
    arguments in the options' place, in order; the last one is always the time-out. TypeError: no form is like the call."""
    fields = dict((*values, TIMEOUT))
    default, count = options(), len(leading)

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def call(self: Any, *given: Any, **named: Any) -> Any:
            lead = [
                given[at] if at < len(given) else _named(method, each, named)
                for at, each in enumerate(leading)
            ]
            rest = given[count:]
            if rest and hasattr(rest[0], "timeout"):
                opts, rest = rest[0], rest[1:]
            else:
                opts = named.pop("opts", default)
            if rest or named:
                opts = _options(method, options(), fields, rest, named)
            return method(self, *map(_listed, lead, leading), opts)

        return call

    return decorate


def _named(method: Method, leading: Leading, named: dict[str, Any]) -> Any:
    for name in leading.names:
        if name in named:
            return named.pop(name)
    raise TypeError(f"{method.__name__}: no `{leading.names[0]}`")


def _listed(value: Any, leading: Leading) -> Any:
    inner = value
    for depth in range(leading.lists + 1):
        if isinstance(inner, torch.Tensor):
            for _ in range(leading.lists - depth):
                value = [value]
            return value
        if not inner:
            break
        inner = inner[0]
    return value


def _options(
    method: Method, opts: Any, fields: dict[str, str], rest: Sequence[Any], named: dict[str, Any]
) -> Any:
    if len(rest) > len(fields) or not named.keys() <= fields.keys():
        raise TypeError(f"{method.__name__}: behind the tensors come options, or {', '.join(fields)}")
    for name, value in (dict(zip(fields, rest, strict=False)) | named).items():
        if value is not None:
            setattr(opts, fields[name], value)
    return opts
