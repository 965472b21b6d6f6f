"""What trials of plans have taught of the predictions of one cluster."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Estimate = tuple[float, Annotated[float, Meta(gt=0)]]
"""Mean and standard deviation."""


class Belief(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Corrections of the cost model, each with its uncertainty (`hocket.planning.learned`).

    Attributes:
        links: by the link's name, or its kind's in large clusters: the logarithm of how many times as slow it is as the cluster
            file says.
        weights: by the feature's name: what the logarithm of a step's time has of it.
    """

    links: dict[str, Estimate] = {}
    weights: dict[str, Estimate] = {}
