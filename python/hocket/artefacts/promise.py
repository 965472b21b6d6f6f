"""Promise of a job about its results: allowances by which they may be other than those of synchronous training with unrounded
gradients. `needs.py` says which a plan or a policy needs."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Any, Literal, get_args

from hocket.errors import UsageError

Word = Literal["exact", "rounded", "merged", "delayed", "local", "uncorrected", "lossy"]
ShortType = Literal["f16", "bf16"]
Amount = str | float

WORDS: dict[Word, dict[str, Amount]] = {
    "exact": {},
    "rounded": {"codec": "f16"},
    "merged": {"codec": "f16", "merge": 1},
    "delayed": {"codec": "f16", "merge": 1, "delay": 0},
    "local": {"codec": "f16", "merge": 1, "delay": 0, "local": 1},
    "uncorrected": {"codec": "f16", "merge": 1, "delay": 0, "uncorrected": 0},
    "lossy": {"codec": "f16", "merge": 1, "delay": 0, "uncorrected": 0, "loss": "any", "local": 1},
}
"""Names for sets of allowances, each with the least amount. A plan's own promise is such a name alone, and allows any amounts."""


@dataclass(frozen=True)
class Promise:
    """Set of allowances: those of a base, and more. None: not allowed.

    Args:
        base: `exact`: DDP's results, up to the order of summation; `rounded`, `merged`, `delayed`, `local`, `uncorrected` and
            `lossy` allow more.
        codec: the element type on links where that is faster. bf16 has the range of f32, and f16 three bits more of precision.
        merge: the number of iterations that one update may merge.
        delay: the number of iterations by which the mean of all ranks may be applied late, while each rank goes on with its own
            gradients: parameters differ between ranks until all means have arrived, and are equal then (`hk.flush`).
        uncorrected: the number of iterations by which a gradient may be applied late with nothing in its place. Momentum and Adam
            then need far smaller learning rates.
        epsilon: the share by which a step's expected progress may be below that of synchronous training.
        loss: `any`: policies, which may round or leave out anything.
        local: the number of steps that ranks may train alone, from one exchange to the next. With it, `delay` is the number of
            steps that they may go on while an exchange is under way.

    Raises UsageError for a word that is not known, and for an amount that is out of range.

    >>> str(Promise("rounded", codec="bf16")), str(Promise(delay=1))
    ('rounded,codec=bf16', 'exact,delay=1')
    """

    base: InitVar[Word] = "exact"
    _: KW_ONLY
    codec: ShortType | None = None
    merge: int | None = None
    delay: int | None = None
    uncorrected: int | None = None
    epsilon: float = 0.01
    loss: Literal["any"] | None = None
    local: int | None = None

    def __post_init__(self, base: Word) -> None:
        """Add the allowances of the base, and check the amounts."""
        _check_known("", base, tuple(WORDS))
        for name, amount in WORDS[base].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, amount)
        _check_known("codec ", self.codec or "f16", get_args(ShortType))
        _check_known("loss ", self.loss or "any", ("any",))
        least = {"merge": 1, "delay": 0, "uncorrected": 0, "local": 1}
        low = any(self._amounts().get(name, 1) < each for name, each in least.items())
        if low or not 0 <= self.epsilon < 1:
            raise UsageError(
                "promise: merge and local are at least 1, delay and uncorrected at least 0, and epsilon from 0 to below 1"
            )

    def __str__(self) -> str:
        """Return the words that `promise_of` reads."""
        amounts = self._amounts()
        base = [each for each in WORDS if WORDS[each].keys() <= amounts.keys()][-1]
        known = {"epsilon": Promise.epsilon, **WORDS[base]}
        return ",".join(
            [base, *(f"{name}={each}" for name, each in amounts.items() if known.get(name) != each)]
        )

    @property
    def word(self) -> Word:
        """First word that names all kinds of allowances of this set."""
        return word_of(self._amounts().keys() - {"epsilon"})

    @property
    def turns(self) -> bool:
        """True if gradients may be merged or late."""
        return any(each is not None for each in (self.merge, self.delay, self.uncorrected, self.local))

    def without_turns(self) -> Promise:
        """Return the promise without merged and late gradients, and without steps alone."""
        return Promise(**self._amounts() | dict.fromkeys(("merge", "delay", "uncorrected", "local")))

    def allows(self, name: str, amount: Amount) -> bool:
        """Return whether results may have that amount of an allowance.

        >>> Promise("merged", merge=2).allows("merge", 2), Promise("rounded").allows("codec", "bf16")
        (True, False)
        """
        most = getattr(self, name)
        return most == amount or (
            isinstance(most, int) and isinstance(amount, int | float) and amount <= most
        )

    def _amounts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in TYPES if getattr(self, name) is not None}


TYPES = {
    "codec": str,
    "merge": int,
    "delay": int,
    "uncorrected": int,
    "epsilon": float,
    "loss": str,
    "local": int,
}


def word_of(names: Set[str]) -> Word:
    """Return the first word that names all of these allowances.

    >>> word_of(set()), word_of({"merge"}), word_of({"delay", "codec"})
    ('exact', 'merged', 'delayed')
    """
    return next(word for word, named in WORDS.items() if names <= named.keys())


def promise_of(given: Promise | str) -> Promise:
    """Return a promise from itself or from words: a base and allowances, or one of these alone.

    Raises UsageError for unknown words, and for other types.

    >>> promise_of("rounded,codec=bf16").codec, promise_of("delay=1") == Promise(delay=1)
    ('bf16', True)
    """
    if not isinstance(given, Promise | str):
        raise UsageError(f"promise={given!r}: a Promise, or words such as {', '.join(map(repr, WORDS))}")
    return given if isinstance(given, Promise) else _parsed(given)


def _check_known(kind: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise UsageError(f"promise{':' * bool(kind)} {kind}`{word}`: known are {', '.join(known)}")


def _parsed(text: str) -> Promise:
    given = [word.strip() for word in text.split(",")]
    base = "exact" if "=" in given[0] else given.pop(0)
    amounts: dict[str, Any] = {}
    for each in given:
        name, _, value = each.partition("=")
        if name not in TYPES:
            raise UsageError(
                f"promise `{text}`: `{each}` is not one of {', '.join(f'{known}=…' for known in TYPES)}"
            )
        try:
            amounts[name] = TYPES[name](value)
        except ValueError:
            wanted = "a whole number" if TYPES[name] is int else "a number"
            raise UsageError(f"promise `{text}`: `{name}` is {wanted}, not {value!r}") from None
    return Promise(base, **amounts)  # type: ignore[arg-type]  # checked there


EXACT = Promise("exact")

ROUNDED = Promise("rounded")
