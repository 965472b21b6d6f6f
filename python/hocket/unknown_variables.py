"""Variables that look like Hocket's, and that nobody reads."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from hocket.errors import UsageError

PREFIX = "HOCKET_"

OTHERS = ("HOCKET_DEBUG", "HOCKET_BLESS", "HOCKET_FUZZ_CASES", "HOCKET_CHURN_S")
"""Variables of the command line and of the tests, not of ranks."""

OF_SERVICES = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?")
"""Endings of variables that Kubernetes gives to all containers for a service, which may be called `hocket`."""


def unknown(environment: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return variables, in order, that look like Hocket's, are not empty, and are not among the `names` that are read.

    >>> unknown({"HOCKET_RANK": "1", "HOCKET_RNAK": "1", "HOCKET_PLAM": "", "RANK": "1"}, ["HOCKET_RANK"])
    ['HOCKET_RNAK']
    """
    known = {*names, *OTHERS}
    given = (name for name, value in environment.items() if name.startswith(PREFIX) and value)
    cluster = "KUBERNETES_SERVICE_HOST" in environment
    return sorted(name for name in given if name not in known and not (cluster and _is_of_service(name)))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the variable that was probably meant, if one is similar.

    >>> nearest("HOCKET_TIMEOUT", ["HOCKET_TIMEOUT_S"]), nearest("HOCKET_ZZZ", ["HOCKET_TIMEOUT_S"])
    ('HOCKET_TIMEOUT_S', None)
    """
    by_rest = {each.removeprefix(PREFIX): each for each in names}
    found = difflib.get_close_matches(name.removeprefix(PREFIX), by_rest, 1)
    return by_rest[found[0]] if found else None


def refuse(environment: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise UsageError if a variable looks like Hocket's, and is not read."""
    known = list(names)
    wrong = unknown(environment, known)
    if not wrong:
        return
    meant = {name: found for name in wrong if (found := nearest(name, known)) is not None}
    listed = ", ".join(f"{name} (did you mean {meant[name]}?)" if name in meant else name for name in wrong)
    them = "it" if len(wrong) == 1 else "them"
    raise UsageError(
        f"nobody reads {listed}\nhint: rename or unset {them}; `hocket doctor` lists all that are read"
    )


def _is_of_service(name: str) -> bool:
    return any(OF_SERVICES.fullmatch(name, at) for at in range(len("HOCKET"), len(name)))
