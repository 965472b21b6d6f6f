"""A model's buffers, and memory of the same layout in which they travel. This file knows tensors and bytes, and no other rank."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

import torch

from hocket import _native

ALIGNMENT_BYTES = 16

Allocate = Callable[[int], _native.Memory]


@dataclass(frozen=True)
class Place:
    """A buffer's properties on which ranks must agree, and its place in sent memory. Checkpoints leave out `temporary` ones."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    temporary: bool

    def __str__(self) -> str:
        """Return shape and dtype."""
        return f"{list(self.shape)} of {str(self.dtype).removeprefix('torch.')}"


@dataclass(frozen=True)
class Current:
    """A model's buffers now, in the order of their places. None: a temporary buffer that does not fit its place any more.
    `settled`: no buffer is such a one, and none is new."""

    tensors: Sequence[torch.Tensor | None]
    settled: bool


class Mirror:
    """Bytes of all buffers, as they were last sent or received: live ones first, then buffers that never changed.

    `memory` is what travels; `live_count` buffers, in its first `live_bytes`, may change. `current` are a model's buffers now.

    The model makes temporary buffers, such as caches, again, and on each rank for its own data. One that no longer fits its place
    is passed over until ranks meet. Buffers that then differ have no place from then on: each rank keeps its own, `apart`.
    """

    def __init__(self, model: torch.nn.Module, live: Set[str], apart: Set[str], allocate: Allocate) -> None:
        """Lay out the model's buffers, with their current contents."""
        named = {name: each for name, each in named_buffers(model).items() if name not in apart}
        order = sorted(named, key=lambda name: name not in live)
        tensors = [named[name] for name in order]
        ends = list(itertools.accumulate(map(_padded, tensors)))
        self.places = places_of(model, {name: named[name] for name in order})
        self.live_count = sum(place.name in live for place in self.places)
        self.live_bytes = ends[self.live_count - 1] if self.live_count else 0
        self.size_bytes = ends[-1] if ends else 0
        # Memory of 0 bytes does not exist.
        self.memory = allocate(max(self.size_bytes, ALIGNMENT_BYTES))
        self.bytes = torch.frombuffer(self.memory, dtype=torch.uint8).zero_()
        self._views = _views(self.bytes, ends, tensors)
        self._now = torch.zeros_like(self.bytes)
        self._now_views = _views(self._now, ends, tensors)
        owners = {
            _joined(path, key): (module, key)
            for path, module in model.named_modules()
            for key in _keys(module)
        }
        self._owners = [owners[name] for name in order]
        self._modules: list[tuple[torch.nn.Module, frozenset[str], frozenset[str]]] = []
        """Modules with buffers: for each, keys of the buffers that have a place, and of those that are apart."""
        self._bare: list[torch.nn.Module] = []
        for path, module in model.named_modules():
            without = frozenset(key for of, _, key in (each.rpartition(".") for each in apart) if of == path)
            if without or len(module._buffers):
                self._modules.append((module, _keys(module) - without, without))
            else:
                self._bare.append(module)
        self._seen = [(each, each._version) for each in tensors]
        self.put(tensors)
        self._now.copy_(self.bytes)

    @property
    def live(self) -> frozenset[str]:
        """Names of buffers that may change."""
        return frozenset(place.name for place in self.places[: self.live_count])

    def current(self) -> Current | None:
        """Return the buffers now, maybe reassigned; None: lasting ones were added or removed, or changed shape or type."""
        settled = True
        grown = ((module, _NOTHING, _NOTHING) for module in self._bare if len(module._buffers))
        for module, keys, without in itertools.chain(self._modules, grown):
            other = (_keys(module) - without) ^ keys
            if other:
                settled = False
                if other - _temporary(module):
                    return None
        found: list[torch.Tensor | None] = []
        for (module, key), view, place in zip(self._owners, self._views, self.places, strict=True):
            # A TorchScript module's buffers have no other methods.
            each = module._buffers[key] if key in module._buffers else None  # noqa: SIM401
            if each is None or each.shape != view.shape or each.dtype != view.dtype:
                if not place.temporary:
                    return None
                settled, each = False, None
            found.append(each)
        return Current(found, settled)

    def put(self, current: Sequence[torch.Tensor | None], *, live: bool = False) -> None:
        """Copy the buffers' contents, or those of live ones alone, into memory."""
        count = self.live_count if live else len(self._views)
        _copy(self._views[:count], current[:count])

    def holds(self, current: Sequence[torch.Tensor | None]) -> bool:
        """Return whether memory has the contents of these buffers, byte by byte: a NaN that was sent counts as equal."""
        _copy(self._now_views, current)
        return torch.equal(self._now, self.bytes)

    def changed(self, model: torch.nn.Module, named: Mapping[str, torch.Tensor]) -> list[str]:
        """Return names of buffers whose contents are not those in memory, or that have no place there."""
        known = dict(zip(self.places, self._views, strict=True))
        return [
            place.name
            for place in places_of(model, named)
            if place not in known or not _same(known[place], named[place.name])
        ]

    def take(self, current: Sequence[torch.Tensor | None]) -> None:
        """Copy memory's contents into buffers that differ."""
        _copy(self._now_views, current)
        for at, (view, now, tensor) in enumerate(zip(self._views, self._now_views, current, strict=True)):
            if tensor is None:
                continue
            before, version = self._seen[at]
            if not _same(view, now):
                module, key = self._owners[at]
                if tensor is not before:
                    # Reassigned by the model: the previous one may be part of a graph.
                    tensor = module._buffers[key] = view.to(tensor.device, copy=True)  # noqa: PLW2901
                elif tensor._version == version:
                    # Changed without autograd's knowledge, as by batch norm: a graph kept for a second backward stays
                    # valid.
                    tensor.data.copy_(view)
                else:
                    with torch.no_grad():
                        tensor.copy_(view)
            self._seen[at] = tensor, tensor._version


_NOTHING: frozenset[str] = frozenset()


def named_buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return buffers by name without opening the model's gates, as the model's own method would."""
    return dict(type(model).named_buffers(model))


def places_of(model: torch.nn.Module, named: Mapping[str, torch.Tensor]) -> list[Place]:
    """Return the places of these buffers of the model."""
    temporary = {_joined(path, key) for path, module in model.named_modules() for key in _temporary(module)}
    return [Place(name, tuple(each.shape), each.dtype, name in temporary) for name, each in named.items()]


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _keys(module: torch.nn.Module) -> frozenset[str]:
    """Return the keys of a module's buffers that are not None."""
    return frozenset(key for key, each in module._buffers.items() if each is not None)


def _temporary(module: torch.nn.Module) -> Set[str]:
    found: Set[str] = getattr(module, "_non_persistent_buffers_set", _NOTHING)
    return found


def _padded(tensor: torch.Tensor) -> int:
    size_bytes = tensor.numel() * tensor.element_size()
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _views(flat: torch.Tensor, ends: Sequence[int], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    starts = [0, *ends][: len(ends)]
    return [
        flat[start : start + each.numel() * each.element_size()].view(each.dtype).view(each.shape)
        for start, each in zip(starts, tensors, strict=True)
    ]


def _copy(views: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor | None]) -> None:
    with torch.no_grad():
        for view, tensor in zip(views, tensors, strict=True):
            if tensor is not None:
                view.copy_(tensor)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether the bytes are equal."""
    a, b = (each.detach().contiguous().cpu().reshape(-1).view(torch.uint8) for each in (a, b))
    return torch.equal(a, b)
