"""Worker 0's description of the training for the servers: parameters, and the optimizer to run. Plain data."""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.errors import UsageError
from hocket.parameter_server.keys import Piece, place


class Parameter(Struct, frozen=True, kw_only=True):
    """A parameter, in the order of the model; `group`: its parameter group in the optimizer."""

    name: str
    elements: int
    dtype: str
    group: int

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return ITEM_BYTES[self.dtype]


class Group(Struct, frozen=True, kw_only=True):
    """Options of a parameter group: `fixed` ones are constant, `numbers` (in the order of names) are sent with every
    step."""

    fixed: dict[str, bool | str | None]
    numbers: dict[str, float | tuple[float, ...]]

    def flat(self) -> list[float]:
        """All numbers, one after the other."""
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


class Description(Struct, frozen=True, kw_only=True, dict=True):
    """The training.

    `optimizer`: a class of torch.optim; `buffers_bytes`: size of workers' own data, such as running means.
    """

    workers: int
    servers: int
    staleness: int | None
    optimizer: str
    keys: tuple[Parameter, ...]
    groups: tuple[Group, ...]
    buffers_bytes: int

    @cached_property
    def pieces(self) -> tuple[tuple[Piece, ...], ...]:
        """By key: its pieces on servers."""
        return place([(key.elements, key.element_bytes) for key in self.keys], self.servers)

    @property
    def world(self) -> int:
        """Number of all ranks."""
        return self.workers + self.servers

    @property
    def header_elements(self) -> int:
        """Length of a step's header: its kind, the iteration, and the numbers of all groups."""
        return 2 + sum(len(group.flat()) for group in self.groups)

    def by_group(self, flat: list[float]) -> list[list[float]]:
        """A header's numbers after the first two, by parameter group."""
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
                    "hint: build the same model, optimizer and choice of servers on every rank"
                )
