"""Questions to the planner of `crates/plan`, and its answers, which cross as JSON.

Each struct is one of the crate, which says what its fields mean. Neither side lacks a field that it needs, nor accepts one that
it does not know; but the crate passes over what is beside the fields of owners, which come with a tag or without. Tuples are
structs without names: of fields in the crate's order.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hocket.artefacts.algorithms import Algorithm
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import AllReduce, Direct, Owner, TwoLevel
from hocket.artefacts.profile import Bus

Pair = tuple[int, int]
"""Sender and receiver: ranks."""

Flow = tuple[int, int, int, int, int]
"""Sender, receiver, bytes, bytes that are reduced into the receiver's memory, messages."""

Slice = tuple[int, int, int]
"""Index of a variable, its first element and end element."""

Class = tuple[int, tuple[float, float, bool] | None]
"""Class of gradients: bytes of an element; and if they may travel as rows, the fraction of rows that a rank touches, bytes of a
row, and whether rows are added to a dense gradient."""


class Shares(Struct, frozen=True, forbid_unknown_fields=True, tag="owned"):
    """Owners (`Owned`) by member."""

    shares: tuple[int, ...]
    workers: int
    via: Direct | TwoLevel = Direct()

    def owners(self, order: Sequence[int]) -> tuple[Owner, ...]:
        """Owners, given the rank of each member."""
        shares = zip(order, self.shares, strict=True)
        return tuple(Owner(rank=rank, share=share) for rank, share in shares if share)


class Rows(Struct, frozen=True, forbid_unknown_fields=True, tag="gathered"):
    """Rows of a gradient (`Gathered`)."""

    algorithm: str
    density: float = 1.0
    row_bytes: float = 1.0
    table: bool = False


class Messages(Struct, frozen=True, tag="counted"):
    """Messages of a program (`Counted`), whose elements are bytes."""

    elements: int
    flows: Sequence[Flow]
    depth: int
    beside: float = 0.0


Exchange = AllReduce | Shares | Rows | Messages
"""The joint operation of a route's members."""


class Route(Struct, frozen=True):
    """Everything that determines how a bucket travels, except its size and priority."""

    exchange: Exchange
    order: tuple[int, ...]
    item_bytes: int
    chunk_elements: int
    codec: tuple[int, tuple[Pair, ...]] | None = None


def route(
    exchange: Exchange,
    order: tuple[int, ...],
    dtype: str,
    chunk_bytes: int,
    codec: tuple[int, tuple[Pair, ...]] | None = None,
) -> Route:
    """Route for gradients of a type."""
    return Route(exchange, order, ITEM_BYTES[dtype], max(1, chunk_bytes // ITEM_BYTES[dtype]), codec)


class Proposal(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Route for gradients of any type."""

    exchange: AllReduce | Shares | Rows
    order: tuple[int, ...]
    rule: str
    chunk_bytes: float
    codec: int | None = None
    codec_links: tuple[Pair, ...] = ()
    measured_as: str = ""


class Setting(Struct, frozen=True):
    """Choices of a search."""

    racks: tuple[int, ...]
    workers: int
    orders: list[tuple[str, Algorithm | None, tuple[int, ...]]]
    codecs: list[tuple[int, tuple[Pair, ...]]]
    chunk_bytes: int
    shared_chunk_bytes: int
    admitted: frozenset[str]
    searched: bool
    seed: int
    given: list[Proposal]


class Model(Struct, frozen=True):
    """Step without communication. `variables`: elements, index of the class, when ready."""

    variables: list[tuple[int, int, float]]
    classes: list[Class]
    backward_end_s: float
    step_s: float
    bus: Bus | None = None


class Chosen(Struct, frozen=True, forbid_unknown_fields=True):
    """Bucket of a plan."""

    parts: list[Slice]
    proposal: int


class Built(Struct, frozen=True, forbid_unknown_fields=True):
    """Fastest plan of a builder."""

    builder: str
    step_s: float
    buckets: list[Chosen]


class Solution(Struct, frozen=True, forbid_unknown_fields=True):
    """Fastest plan that was found."""

    buckets: list[Chosen]
    proposals: list[Proposal]
    step_s: float
    bound_s: float
    least_s: float
    evaluations: int
    uniform: list[tuple[int, int, float]]
    chosen: int | None
    bundlings: list[tuple[int, list[list[int]]]]
    built: list[Built]
