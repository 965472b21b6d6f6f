"""Facts of how a model learns: its optimizer, and its loss and gradients in a few measured steps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from hocket import typed
from hocket.artefacts.numbers import Factor, Ranks, Real
from hocket.errors import UsageError

CheckName = Literal["ratio", "progress", "stability"]


class Learning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts that decide whether updates may be merged or late; None: not measured.

    Attributes:
        optimizer: its class, for people.
        rate: factor of a new gradient in a step, the largest of all groups of parameters.
        momentum: factor of the last move in a step.
        adaptive: the optimizer divides gradients by earlier ones (Adam), so that `curvature` is that of the loss divided so, and
            the walk of SGD says nothing.
        ranks: contributions of an iteration.
        drift: squared norm of the true gradient.
        noise_scale: number of contributions whose mean has as much noise as gradient: tr(Σ) / ‖g‖².
        noise: deviation of the product of the true gradient with one rank's contribution.
        losses: losses of measured steps, mean over ranks.
        floor: lowest possible loss, as the user says.
        curvature: largest eigenvalue of the loss's Hessian.
    """

    optimizer: str
    rate: Factor
    momentum: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    adaptive: bool = False
    ranks: Ranks = 1
    drift: Real | None = None
    noise: Factor | None = None
    noise_scale: Factor | None = None
    losses: tuple[Real, ...] = ()
    floor: Real | None = None
    curvature: Factor | None = None


class Check(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Value of a check, and the limit that it must not pass; `passed` is None if the value is not known."""

    name: CheckName
    value: float | None
    limit: float
    passed: bool | None


KINDS = {"sgd": 0.0, "adam": 0.9}
"""Optimizers in words → momentum if none is given."""

NUMBERS = ("rate", "momentum", "loss", "floor", "drift", "noise", "noise_scale", "curvature")


def learning_of(text: str) -> Learning:
    """Parse words: `sgd` or `adam`, then numbers; `rate` is the learning rate.

    Raises UsageError for unknown words.

    >>> learning_of("sgd,rate=0.1,momentum=0.9,curvature=3").curvature
    3.0
    """
    kind, *given = (word.strip() for word in text.split(","))
    if kind not in KINDS:
        raise UsageError(f"learning `{text}`: it begins with {' or '.join(KINDS)}")
    numbers: dict[str, Any] = {"momentum": KINDS[kind]}
    for each in given:
        name, _, value = each.partition("=")
        if name not in NUMBERS:
            raise UsageError(
                f"learning `{text}`: `{each}` is not one of {', '.join(f'{known}=…' for known in NUMBERS)}"
            )
        try:
            numbers[name] = float(value)
        except ValueError:
            raise UsageError(f"learning `{text}`: `{name}` is a number, not {value!r}") from None
    if "rate" not in numbers:
        raise UsageError(f"learning `{text}`: rate=… is missing")
    if "loss" in numbers:
        numbers["losses"] = (numbers.pop("loss"),)
    if adaptive := kind == "adam":
        numbers["rate"] *= 1 - numbers["momentum"]
    try:
        return typed.of_builtins({"optimizer": kind, "adaptive": adaptive, **numbers}, Learning)
    except msgspec.ValidationError as error:
        raise UsageError(f"learning `{text}`: {error}") from None
