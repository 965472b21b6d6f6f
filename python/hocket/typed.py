"""Decoding of data as values of types, in any thread.

msgspec describes a `Struct` when a value of it is first decoded, and keeps the description with the class before it is complete.
A second thread that decodes the same type meanwhile reads through a null pointer (0.22 and before). Here, one thread at a time
has a type described; threads that decode it afterwards take no lock. Lints refuse msgspec's own functions elsewhere.
"""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")
Decoder = msgspec.json.Decoder
Text = bytes | bytearray | memoryview | str | msgspec.Raw

_describing = threading.Lock()
_described: set[Any] = set()
# A process that is forked meanwhile would find the lock held for ever.
os.register_at_fork(
    before=_describing.acquire, after_in_parent=_describing.release, after_in_child=_describing.release
)


@overload
def of_json(data: Text) -> Any: ...
@overload
def of_json(data: Text, kind: type[T]) -> T: ...
def of_json(data: Text, kind: Any = Any) -> Any:
    """Return JSON as a value of that type. Raises `msgspec.DecodeError`, and other errors that `artefacts.decoding` lists."""
    return msgspec.json.decode(data, type=_known(kind))


@overload
def of_msgpack(data: bytes) -> Any: ...
@overload
def of_msgpack(data: bytes, kind: type[T]) -> T: ...
def of_msgpack(data: bytes, kind: Any = Any) -> Any:
    """Return MessagePack as a value of that type. Raises `msgspec.DecodeError`."""
    return msgspec.msgpack.decode(data, type=_known(kind))


def of_builtins(tree: Any, kind: type[T], *, strict: bool = True) -> T:
    """Return dictionaries, lists and numbers as a value of that type. Raises `msgspec.ValidationError`."""
    found: T = msgspec.convert(tree, _known(kind), strict=strict)
    return found


def json_decoder(kind: Any) -> Decoder[Any]:
    """Return a decoder of values of that type."""
    return Decoder(_known(kind))


def _known(kind: Any) -> Any:
    if kind not in _described:
        with _describing:
            Decoder(kind)
            _described.add(kind)
    return kind
