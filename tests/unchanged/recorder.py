"""What of a commit is recorded, by kind: a kind is a line here. It is imported as it is recorded, since modules move."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from tests.unchanged.records import Texts

GOLDENS = {
    "signature": "signatures",
    "help": "helps",
    "setting": "settings",
    "promise": "promises",
    "version": "versions",
    "checkpoint": "checkpoints",
    "journal": "journals",
    "policy": "policies",
}
PLANNED = {"program": "programs", "plan": "plans", "step": "steps", "order": "orders"}
KINDS = (*GOLDENS, *PLANNED)


def recorded(kinds: tuple[str, ...] = KINDS, *, quick: bool) -> dict[str, Callable[[], Texts]]:
    """What yields keys and texts of each of these kinds; `quick`: of some clusters and plans alone."""

    @cache
    def planned() -> Any:
        return import_module("tests.unchanged.planned").Planned(quick=quick)

    def texts(kind: str) -> Texts:
        if kind in PLANNED:
            yield from getattr(planned(), PLANNED[kind])()
        else:
            yield from getattr(import_module("tests.unchanged.goldens"), GOLDENS[kind])()

    return {kind: lambda kind=kind: texts(kind) for kind in kinds}  # type: ignore[misc]
