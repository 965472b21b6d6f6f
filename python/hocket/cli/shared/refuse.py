"""Refusal of options that do not apply to the requested variant of a verb, by name; they are never ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hocket.errors import UsageError


def refuse(given: Mapping[str, object], names: Sequence[str], why: str) -> None:
    """Raise UsageError if one of the options is given; `given` has None for absent ones.

    >>> refuse({"--rank": None}, ["--rank"], "there is one rank")
    """
    wrong = [name for name in names if given[name] is not None]
    if wrong:
        raise UsageError(f"{', '.join(wrong)} {'does' if len(wrong) == 1 else 'do'} not apply: {why}")
