"""Worker 0's description of the training for the servers: keys, and the optimizer to run. Plain data."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hocket import typed
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import Bucket, Codec, Served
from hocket.errors import UsageError
from hocket.parameter_server.keys import Piece, cut


class Segment(Struct, frozen=True, kw_only=True):
    """Consecutive elements of a key, whose parameters are in one group of the optimizer."""

    elements: int
    group: int


class Key(Struct, frozen=True, kw_only=True):
    """A bucket of the plan, which is pushed and pulled as a unit. Lower `priority` goes first.

    `lengths`: elements in each piece of a worker's memory, if there are several. `servers`: servers with a piece of the key,
    counted from 0. `staleness`: see `ParameterServer.staleness`. `codec` is used on `links`, ordered pairs of ranks. `cards`: see
    `Bucket.cards`.
    """

    name: str
    dtype: str
    segments: tuple[Segment, ...]
    lengths: tuple[int, ...] = ()
    servers: tuple[int, ...]
    staleness: int | None
    priority: int
    codec: Codec = "none"
    links: tuple[tuple[int, int], ...] = ()
    cards: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        return sum(each.elements for each in self.segments)

    @property
    def element_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Pieces of the key on its servers; none for a key without elements."""
        return tuple(piece for piece in cut(self.elements, self.servers) if len(piece))

    def segments_of(self, piece: Piece) -> list[tuple[int, int, int]]:
        """Groups of a piece's elements: (first, end, group).

        >>> two = Key(name="", dtype="f32", segments=(Segment(elements=3, group=0), Segment(elements=4, group=1)),
        ...           servers=(0,), staleness=0, priority=0)
        >>> two.segments_of(Piece(0, 2, 6))
        [(0, 1, 0), (1, 4, 1)]
        """
        found, end = [], 0
        for each in self.segments:
            start, end = end, end + each.elements
            first, last = max(start, piece.start), min(end, piece.stop)
            if first < last:
                found.append((first - piece.start, last - piece.start, each.group))
        return found


def key_of(
    bucket: Bucket,
    route: Served,
    workers: int,
    *,
    segments: Sequence[Segment] = (),
    lengths: Sequence[int] = (),
) -> Key:
    """Convert a bucket to a key; `segments`: default: one group for all elements.

    >>> from hocket.artefacts.plan import Part
    >>> bucket = Bucket(parts=(Part(variable="w"), Part(variable="b")), elements=9, dtype="f32", route=Served(servers=(3, 2)),
    ...                 order=(), priority=0)
    >>> key = key_of(bucket, bucket.route, 2)
    >>> key.name, key.elements, key.servers
    ('w and 1 more', 9, (1, 0))
    """
    first, *more = bucket.variables
    return Key(
        name=f"{first} and {len(more)} more" if more else first,
        dtype=bucket.dtype,
        segments=tuple(segments) or (Segment(elements=bucket.elements, group=0),),
        lengths=tuple(lengths),
        servers=tuple(rank - workers for rank in route.servers),
        staleness=route.staleness,
        priority=bucket.priority,
        codec=bucket.codec,
        links=bucket.codec_links,
        cards=bucket.cards,
    )


class Group(Struct, frozen=True, kw_only=True):
    """Options of a parameter group: `fixed` ones are constant, `numbers` (sorted by name) are sent with every step."""

    fixed: dict[str, bool | str | None]
    numbers: dict[str, float | tuple[float, ...]]

    def flat(self) -> list[float]:
        """All numbers in one list, sorted by name."""
        return [
            each
            for _, value in sorted(self.numbers.items())
            for each in (value if isinstance(value, tuple) else (value,))
        ]

    def options(self, flat: list[float]) -> dict[str, bool | str | float | tuple[float, ...] | None]:
        """The optimizer's options, with current numbers instead of the initial ones."""
        options: dict[str, bool | str | float | tuple[float, ...] | None] = dict(self.fixed)
        at = 0
        for name, value in sorted(self.numbers.items()):
            if isinstance(value, tuple):
                options[name] = tuple(flat[at : at + len(value)])
                at += len(value)
            else:
                options[name] = flat[at]
                at += 1
        return options


class Description(Struct, frozen=True, kw_only=True):
    """The training. `keys`: by the number of their bucket; `optimizer`: a class of torch.optim; `training`: its number in the
    job."""

    workers: int
    servers: int
    optimizer: str
    keys: dict[int, Key]
    groups: tuple[Group, ...]
    training: int = 0

    def text(self) -> str:
        """Encode for the store; `of_text` is the inverse."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of_text(cls, text: object) -> Description:
        """Decode the result of `text`."""
        return typed.of_json(str(text), cls)

    @property
    def world(self) -> int:
        return self.workers + self.servers

    @property
    def header_elements(self) -> int:
        """Length of a step's header: its kind, the iteration, and the numbers of all groups."""
        return 2 + sum(len(group.flat()) for group in self.groups)

    def by_group(self, flat: list[float]) -> list[list[float]]:
        """Numbers of a header after the first two, by parameter group."""
        parts, at = [], 0
        for group in self.groups:
            stop = at + len(group.flat())
            parts.append(flat[at:stop])
            at = stop
        return parts

    def check_same(self, mine: Description, rank: int) -> None:
        """Raise UsageError if a worker's own script describes another training."""
        for name in self.__struct_fields__:
            if name != "groups" and getattr(self, name) != getattr(mine, name):
                raise UsageError(
                    f"rank {rank} asks for another training than rank 0: `{name}` differs\n"
                    "hint: build the same model, optimizer and plan or choice of servers on every rank"
                )
