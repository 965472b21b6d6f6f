"""Hooks and replaced attributes of objects, which can be taken back, and which copies of the objects do not get."""

from __future__ import annotations

from typing import Any

import torch

from hocket.torch.scales import Look

_ABSENT = object()


class Patches:
    """Patches of any number of objects."""

    def __init__(self) -> None:
        """Begin without patches."""
        self._handles: dict[int, torch.utils.hooks.RemovableHandle | Look] = {}
        self._replaced: dict[int, tuple[Any, dict[str, tuple[Any, Any]]]] = {}

    def keep(self, handle: torch.utils.hooks.RemovableHandle | Look) -> None:
        """Keep the handle of a hook."""
        self._handles[handle.id] = handle

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute of the instance: class and signature stay, and `without` finds it again."""
        names = self._replaced.setdefault(id(owner), (owner, {}))[1]
        names[name] = (value, owner.__dict__.get(name, _ABSENT))
        owner.__dict__[name] = value

    def put_back(self, owner: Any, name: str, attributes: dict[str, Any]) -> None:
        """Put the attribute before back into `attributes`, the `__dict__` of `owner` or a copy, if nobody else replaced it."""
        ours, before = self._replaced[id(owner)][1][name]
        if attributes.get(name) is ours:
            del attributes[name]
            if before is not _ABSENT:
                attributes[name] = before

    def remove(self) -> None:
        """Remove all hooks, and put all attributes back."""
        for handle in self._handles.values():
            handle.remove()
        for owner, names in self._replaced.values():
            for name in names:
                self.put_back(owner, name, owner.__dict__)

    def without(self, owner: Any, state: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of `state`, the `__dict__` of `owner`, without patches, for copies."""
        state = dict(state)
        for name in self._replaced[id(owner)][1]:
            self.put_back(owner, name, state)
        for name, hooks in state.items():
            if "_hooks" in name and isinstance(hooks, dict):
                kept = ((key, hook) for key, hook in hooks.items() if key not in self._handles)
                state[name] = type(hooks)(kept)
        return state
