"""Plans of how gradients travel: the search for the fastest one, and builders, by which users make plans of their own."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hocket.artefacts.plan import AllReduce, Gathered, Owned, Owner, Traced, TwoLevel
    from hocket.planning.builder import Builder
    from hocket.planning.job import Job
    from hocket.planning.search import built_by, considered, plan

__all__ = [
    "AllReduce",
    "Builder",
    "Gathered",
    "Job",
    "Owned",
    "Owner",
    "Traced",
    "TwoLevel",
    "built_by",
    "considered",
    "plan",
]

_WHERE = {
    **dict.fromkeys(
        ("AllReduce", "Gathered", "Owned", "Owner", "Traced", "TwoLevel"), "hocket.artefacts.plan"
    ),
    **dict.fromkeys(("built_by", "considered", "plan"), "hocket.planning.search"),
    "Builder": "hocket.planning.builder",
    "Job": "hocket.planning.job",
}
"""Names that are loaded on access: modules of this package are used without them."""


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module `hocket.planning` has no attribute `{name}`")
