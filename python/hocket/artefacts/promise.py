"""What a job promises of its results: how far they may be from those of synchronous training with unrounded gradients."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from typing import Literal, get_args

from hocket.errors import UsageError

Level = Literal["exact", "rounded", "merged", "delayed", "lossy"]
"""Each level allows what those before it allow. `exact`: DDP's results, up to the order of summation. `rounded`: gradients in f16
or bf16 on links where that is faster. `merged`: larger batches. `delayed`: gradients that are applied late. `lossy`: codecs with
error feedback."""

LEVELS: tuple[Level, ...] = get_args(Level)

AVAILABLE: tuple[Level, ...] = ("exact", "rounded", "merged", "delayed")
"""What can be asked for so far."""

ShortType = Literal["f16", "bf16"]

FIRST_LEVELS: dict[str, Level] = {
    "codec": "rounded",
    "merge": "merged",
    "delay": "delayed",
    "epsilon": "merged",
}
"""The first level that each number is of."""


@dataclass(frozen=True)
class Promise:
    """A level, with its numbers.

    Args:
        level: the furthest that results may be from DDP's.
        codec: of `rounded`: the element type on links. bf16 has the range of f32, and f16 three bits more of precision.
        merge: of `merged`: how many iterations one update may be of.
        delay: of `delayed`: how many iterations late a gradient may be applied.
        epsilon: of `merged`: by how much a step's expected progress may be below that of synchronous training.

    Raises UsageError for a number that is not of the level, or that cannot be.

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
        """Checks the numbers."""
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
        """As `promise_of` reads it."""
        return ",".join([self.level, *(f"{name}={getattr(self, name)}" for name in self._numbers())])

    def allows(self, level: Level) -> bool:
        """Whether results of that level keep the promise."""
        return allows(self.level, level)

    def _numbers(self) -> list[str]:
        """Names of those that are not the default."""
        return [
            each.name
            for each in fields(self)
            if each.name in FIRST_LEVELS and getattr(self, each.name) != each.default
        ]


EXACT = Promise("exact")

ROUNDED = Promise("rounded")


def allows(promised: Level, level: Level) -> bool:
    """Whether results of `level` keep what is `promised`.

    >>> allows("exact", "rounded"), allows("rounded", "exact")
    (False, True)
    """
    return LEVELS.index(level) <= LEVELS.index(promised)


def promise_of(given: Promise | str) -> Promise:
    """A promise that can be kept, from itself or from words: a level, then numbers.

    Raises UsageError for words that are none, for what is neither, and for levels that are not available yet.

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
