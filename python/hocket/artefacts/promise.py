"""Promise of a job about its results: how far they may be from those of synchronous training with unrounded gradients."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from typing import Literal, get_args

from hocket.errors import UsageError

Level = Literal["exact", "rounded", "merged", "delayed", "lossy"]
"""Level of a promise; each allows what lower ones allow. `exact`: DDP's results, up to the order of summation. `rounded`: f16
or bf16 gradients on links where that is faster. `merged`: larger batches. `delayed`: gradients applied late. `lossy`: codecs with
error feedback."""

LEVELS: tuple[Level, ...] = get_args(Level)

AVAILABLE: tuple[Level, ...] = ("exact", "rounded", "merged", "delayed")
"""Levels that can be asked for so far."""

ShortType = Literal["f16", "bf16"]

FIRST_LEVELS: dict[str, Level] = {
    "codec": "rounded",
    "merge": "merged",
    "delay": "delayed",
    "epsilon": "merged",
}
"""First level to which each number applies."""


@dataclass(frozen=True)
class Promise:
    """Level of a promise, with its numbers.

    Args:
        level: the furthest that results may be from DDP's.
        codec: from `rounded` on, the element type on links. bf16 has the range of f32, and f16 three bits more of precision.
        merge: from `merged` on, the number of iterations that one update may merge.
        delay: from `delayed` on, the number of iterations by which a gradient may be applied late.
        epsilon: from `merged` on, the share by which a step's expected progress may be below that of synchronous training.

    Raises UsageError for a number that the level does not have, or that is out of range.

    >>> str(Promise("rounded", codec="bf16"))
    'rounded,codec=bf16'
    """

    level: Level = "exact"
    _: KW_ONLY
    codec: ShortType = "f16"
    merge: int = 1
    delay: int = 0
    epsilon: float = 0.01

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.level not in LEVELS:
            raise UsageError(f"promise `{self.level}`: known are {', '.join(LEVELS)}")
        if self.codec not in get_args(ShortType):
            raise UsageError(f"promise: codec `{self.codec}`: known are {', '.join(get_args(ShortType))}")
        if self.merge < 1 or self.delay < 0 or not 0 <= self.epsilon < 1:
            raise UsageError("promise: merge is at least 1, delay at least 0, and epsilon from 0 to below 1")
        for name in self._numbers():
            if not allows(self.level, FIRST_LEVELS[name]):
                raise UsageError(f"promise: `{self.level}` has no {name}, `{FIRST_LEVELS[name]}` has")

    def __str__(self) -> str:
        """Return the words that `promise_of` reads."""
        return ",".join([self.level, *(f"{name}={getattr(self, name)}" for name in self._numbers())])

    def allows(self, level: Level) -> bool:
        """Return whether results of that level keep the promise."""
        return allows(self.level, level)

    def _numbers(self) -> list[str]:
        """Return the names of numbers that are not the default."""
        return [
            each.name
            for each in fields(self)
            if each.name in FIRST_LEVELS and getattr(self, each.name) != each.default
        ]


EXACT = Promise("exact")

ROUNDED = Promise("rounded")


def allows(promised: Level, level: Level) -> bool:
    """Return whether results of `level` keep what is `promised`.

    >>> allows("exact", "rounded"), allows("rounded", "exact")
    (False, True)
    """
    return LEVELS.index(level) <= LEVELS.index(promised)


def promise_of(given: Promise | str) -> Promise:
    """Return a promise that can be kept, from itself or from words: a level, then numbers.

    Raises UsageError for unknown words, for other types, and for levels that are not available yet.

    >>> promise_of("rounded,codec=bf16").codec
    'bf16'
    """
    if not isinstance(given, Promise | str):
        raise UsageError(f"promise={given!r}: a Promise, or words such as {', '.join(map(repr, AVAILABLE))}")
    found = given if isinstance(given, Promise) else _parsed(given)
    if found.level not in AVAILABLE:
        raise UsageError(
            f"promise `{found.level}` is not available yet\nhint: {' or '.join(AVAILABLE)}, or a policy that "
            "decides how gradients travel"
        )
    return found


def _parsed(text: str) -> Promise:
    level, *given = (word.strip() for word in text.split(","))
    kinds = {"codec": str, "merge": int, "delay": int, "epsilon": float}
    numbers = {}
    for each in given:
        name, _, value = each.partition("=")
        if name not in kinds:
            raise UsageError(
                f"promise `{text}`: `{each}` is not one of {', '.join(f'{known}=…' for known in kinds)}"
            )
        try:
            numbers[name] = kinds[name](value)
        except ValueError:
            wanted = "a whole number" if kinds[name] is int else "a number"
            raise UsageError(f"promise `{text}`: `{name}` is {wanted}, not {value!r}") from None
    return Promise(level, **numbers)  # type: ignore[arg-type]  # checked there
