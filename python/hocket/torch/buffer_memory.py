"""A model's buffers, and memory of the same layout in which they travel. It knows tensors and bytes, and of no other rank."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from hocket import _native

ALIGNMENT_BYTES = 16


@dataclass(frozen=True)
class Place:
    """A buffer's properties on which ranks must agree, and its place in the memory that is sent."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        """Shape and dtype."""
        return f"{list(self.shape)} of {str(self.dtype).removeprefix('torch.')}"


class Mirror:
    """Bytes of all buffers, as they were last sent or received: live ones first, then those that never changed.

    `memory` is what travels; `live_count` buffers, in its first `live_bytes`, may change. `current` are a model's buffers now.
    """

    def __init__(self, model: torch.nn.Module, live: Collection[str], memory: _native.Memory) -> None:
        """Lays out the model's buffers, with their contents now, in `memory` of as many bytes."""
        named = named_buffers(model)
        order = sorted(named, key=lambda name: name not in live)
        tensors = [named[name] for name in order]
        ends = list(itertools.accumulate(map(_padded, tensors)))
        self.places = places_of({name: named[name] for name in order})
        self.live_count = sum(place.name in live for place in self.places)
        self.live_bytes = ends[self.live_count - 1] if self.live_count else 0
        self.memory = memory
        self.bytes = torch.frombuffer(memory, dtype=torch.uint8).zero_()
        self._views = _views(self.bytes, ends, tensors)
        self._now = torch.zeros(ends[-1], dtype=torch.uint8)
        self._now_views = _views(self._now, ends, tensors)
        modules = {id(each): name for name, each in model.named_modules()}
        owners = {
            ".".join(filter(None, (modules[id(module)], key))): (module, key)
            for module in model.modules()
            for key in module._buffers
        }
        self._owners = [owners[name] for name in order]
        self._seen = [(each, each._version) for each in tensors]
        self._counts = [
            (module, sum(each is not None for each in module._buffers.values()))
            for module in model.modules()
            if module._buffers
        ]
        self.put(tensors)

    @property
    def live(self) -> frozenset[str]:
        """Names of buffers that may change."""
        return frozenset(place.name for place in self.places[: self.live_count])

    def current(self) -> list[torch.Tensor] | None:
        """The buffers as sent, maybe reassigned; None if others were added or removed, or changed shape or type."""
        for module, count in self._counts:
            if sum(each is not None for each in module._buffers.values()) != count:
                return None
        found = []
        for (module, key), view in zip(self._owners, self._views, strict=True):
            each = module._buffers.get(key)
            if each is None or each.shape != view.shape or each.dtype != view.dtype:
                return None
            found.append(each)
        return found

    def put(self, current: Sequence[torch.Tensor], *, live: bool = False) -> None:
        """The buffers' contents, or those of live ones alone, into memory."""
        count = self.live_count if live else len(self._views)
        _copy(self._views[:count], current[:count])

    def holds(self, current: Sequence[torch.Tensor]) -> bool:
        """Whether memory has the contents of these buffers, byte by byte: a NaN that was sent counts as equal."""
        _copy(self._now_views, current)
        return torch.equal(self._now, self.bytes)

    def changed(self, named: dict[str, torch.Tensor]) -> list[str]:
        """Names of buffers whose contents are not those in memory, or that have no place there."""
        known = dict(zip(self.places, self._views, strict=True))
        return [
            place.name
            for place in places_of(named)
            if place not in known or not _same(known[place], named[place.name])
        ]

    def take(self, current: Sequence[torch.Tensor]) -> None:
        """Copy what memory has into buffers that differ."""
        _copy(self._now_views, current)
        for at, (view, now, tensor) in enumerate(zip(self._views, self._now_views, current, strict=True)):
            before, version = self._seen[at]
            if not _same(view, now):
                module, key = self._owners[at]
                if tensor is not before:
                    # Reassigned by the model: the previous one may be part of a graph.
                    tensor = module._buffers[key] = view.clone()  # noqa: PLW2901
                elif tensor._version == version:
                    # Changed without autograd's knowledge, as by batch norm: a graph kept for a second backward stays
                    # valid.
                    tensor.data.copy_(view)
                else:
                    with torch.no_grad():
                        tensor.copy_(view)
            self._seen[at] = tensor, tensor._version


def mirror(
    model: torch.nn.Module, live: Collection[str], allocate: Callable[[int], _native.Memory]
) -> Mirror | None:
    """Of all buffers of the model, with `live` first; None: there are none, or they have no bytes."""
    size_bytes = sum(map(_padded, named_buffers(model).values()))
    return Mirror(model, live, allocate(size_bytes)) if size_bytes else None


def named_buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """By name, without opening the model's gates, as to ask the model itself would."""
    return dict(type(model).named_buffers(model))


def places_of(named: dict[str, torch.Tensor]) -> list[Place]:
    """Of buffers by name."""
    return [Place(name, tuple(each.shape), each.dtype) for name, each in named.items()]


def _padded(tensor: torch.Tensor) -> int:
    size_bytes = tensor.numel() * tensor.element_size()
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _views(flat: torch.Tensor, ends: Sequence[int], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    starts = [0, *ends[:-1]]
    return [
        flat[start : start + each.numel() * each.element_size()].view(each.dtype).view(each.shape)
        for start, each in zip(starts, tensors, strict=True)
    ]


def _copy(views: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for view, tensor in zip(views, tensors, strict=True):
            view.copy_(tensor)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the bytes are equal."""
    a, b = (each.detach().contiguous().reshape(-1).view(torch.uint8) for each in (a, b))
    return torch.equal(a, b)
