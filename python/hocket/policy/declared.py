"""Checks of a policy's declarations before their first use: a misspelt handler would silently never be called."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from hocket.errors import PolicyError
from hocket.policy.policy import Policy, Value

HANDLERS = tuple(name for name in vars(Policy) if name.startswith("on_"))
DECLARATIONS = tuple(name for name in Policy.__annotations__ if not name.startswith("_"))
CONTRACTS = ("mean", "same", "none")

SIMILAR = 0.85
"""Least similarity of two names, without `_` and capitals; `parameter` and `parameters` have it."""

WHOLE_MAX = 1 << 63


def check(policy: Policy) -> None:
    """Raise PolicyError, with the name, for an invalid declaration."""
    kind = type(policy)
    for name in _own(kind):
        _check_name(kind, name)
    for name in HANDLERS:
        handler = getattr(policy, name)
        try:
            inspect.signature(handler).bind(None, None)
        except (TypeError, ValueError):
            wanted = ", ".join(inspect.signature(getattr(Policy, name)).parameters)
            raise _refusal(
                kind, f"`{name}` takes other arguments than it gets", f"{name}({wanted})", name
            ) from None
    for what, chosen, known in (
        ("contract", policy.contract, CONTRACTS),
        ("gates", policy.gates, (False, True)),
    ):
        if chosen not in known:
            raise _refusal(kind, f"`{what}` is {chosen!r}", f"one of {', '.join(map(repr, known))}")
    interval_s: Any = policy.timer_interval_s
    if not isinstance(interval_s, int | float) or not 0 < interval_s < math.inf:
        raise _refusal(kind, f"`timer_interval_s` is {interval_s!r}", "a number of seconds above 0")
    if not isinstance(policy.parameters, Mapping):
        raise _refusal(kind, f"`parameters` is {policy.parameters!r}", "a dict of names and values")
    for name, value in policy.parameters.items():
        if not isinstance(name, str):
            raise _refusal(kind, f"`parameters` has {name!r}, which is no name", "a name is a str")
        if not is_value(value):
            raise _refusal(
                kind,
                f"the agreed value `{name}` is {value!r}",
                "a value is an int, a finite float, a str or a bool",
            )


def is_value(value: object) -> bool:
    """Return whether ranks can agree on a value: its type is one of `Value`, and the value equals itself on each rank."""
    if isinstance(value, float):
        return type(value) is float and math.isfinite(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return type(value) is int and -WHOLE_MAX <= value < WHOLE_MAX
    return type(value) in get_args(Value)


def _own(kind: type[Policy]) -> Iterator[str]:
    """Public names defined by the class and its bases up to Policy."""
    for each in kind.__mro__:
        if each is not Policy and issubclass(each, Policy):
            yield from (name for name in vars(each) if not name.startswith("_"))


def _check_name(kind: type[Policy], name: str) -> None:
    known = (*HANDLERS, *DECLARATIONS)
    if name in known:
        return
    plain = {each.replace("_", "").lower(): each for each in known}
    similar = difflib.get_close_matches(name.replace("_", "").lower(), plain, 1, SIMILAR)
    if name.startswith("on_") or similar:
        meant = plain[similar[0]] if similar else difflib.get_close_matches(name, HANDLERS, 1, 0)[0]
        raise _refusal(
            kind, f"nobody looks at `{name}`", f"{meant}, or another name for what is your own", name
        )


def _refusal(kind: type[Policy], what: str, hint: str, name: str | None = None) -> PolicyError:
    """Make the error, with the place of the class's member `name`, if known."""
    member = None if name is None else inspect.unwrap(getattr(kind, name))
    code = getattr(member, "__code__", None)
    file, line = (None, None) if code is None else (code.co_filename, code.co_firstlineno)
    where = "" if file is None else f"{file}:{line}: "
    return PolicyError(f"{where}policy {kind.__name__}: {what}\nhint: {hint}", file=file, line=line)
