"""Corrections of the predictions for one cluster, learned from trials of plans."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Estimate = tuple[float, Annotated[float, Meta(gt=0)]]
"""Mean and standard deviation."""


class Belief(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Corrections of the cost model, each with its uncertainty (`hocket.planning.learned`).

    Attributes:
        links: by the link's name, or its kind's in large clusters: logarithm of the factor by which it is slower than the cluster
            file says.
        weights: by the feature's name: its part of the logarithm of a step's time.
    """

    links: dict[str, Estimate] = {}
    weights: dict[str, Estimate] = {}
