"""Chakra execution traces (`.et`): messages of `et_def.proto`, each behind its length as a varint, metadata first, then nodes.

Integers are the members that ASTRA-sim's reader expects: `comm_type` and `comm_size` int64, `comm_src`, `comm_dst` and `comm_tag`
int32, `is_cpu_op` bool; every real dependency is in `data_deps`. The schema is mlcommons/chakra `schema/protobuf/et_def.proto`.
A file holds one rank's nodes; a job is `NAME.RANK.et`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

from hocket import extras
from hocket.errors import ArtefactError

VERSION = "0.0.4"
"""Version of the schema in files."""

MESSAGE_BYTES_MAX = 64 << 20
"""Limit of one message; metadata with a whole program in it takes some 100 KiB."""


class NodeType(IntEnum):
    METADATA = 1
    MEMORY_LOAD = 2
    MEMORY_STORE = 3
    COMPUTE = 4
    SEND = 5
    RECEIVE = 6
    COLLECTIVE = 7


class CollectiveType(IntEnum):
    """Values of `comm_type` of a collective."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


Value = bool | int | float | str | bytes | list[Any]

INTEGERS = {
    "comm_type": "int64_val", "comm_size": "int64_val", "comm_src": "int32_val", "comm_dst": "int32_val",
    "comm_tag": "int32_val", "tensor_size": "uint64_val", "is_cpu_op": "bool_val", "pid": "uint64_val",
    "start_ts": "uint64_val", "finish_ts": "uint64_val",
}  # fmt: skip
"""Members that hold attributes; others by their Python type."""

SCALARS = (
    ("double", 1), ("float", 2), ("int32", 5), ("int64", 3), ("uint32", 13), ("uint64", 4), ("sint32", 17), ("sint64", 18),
    ("fixed32", 7), ("fixed64", 6), ("sfixed32", 15), ("sfixed64", 16), ("bool", 8), ("string", 9), ("bytes", 12),
)  # fmt: skip
"""Scalar types in the order of the schema's `oneof`, which has each and its list; with protobuf's type numbers."""


@dataclass
class Node:
    """Node as in the file; microseconds."""

    id: int
    name: str
    type: int
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: int = 0
    attributes: dict[str, Value] = field(default_factory=dict)
    io: tuple[tuple[str, str, str], tuple[str, str, str]] | None = None
    """Values, shapes and types of inputs and outputs, if the file has them."""


@dataclass(frozen=True)
class EtFile:
    nodes: tuple[Node, ...]
    version: str = ""
    metadata: dict[str, Value] = field(default_factory=dict)
    truncated: bool = False
    """True if the file ends within a message; the complete ones are there."""


def compute(number: int, name: str, duration_us: int, after: Iterable[int] = ()) -> Node:
    """Return a node of computation that takes `duration_us`."""
    return Node(number, name, NodeType.COMPUTE, tuple(after), duration_us=duration_us)


def send(number: int, name: str, *, to: int, tag: int, size_bytes: int, after: Iterable[int] = ()) -> Node:
    """Return a message to rank `to`."""
    attributes: dict[str, Value] = {
        "comm_type": int(NodeType.SEND),
        "comm_size": size_bytes,
        "comm_dst": to,
        "comm_tag": tag,
    }
    return Node(number, name, NodeType.SEND, tuple(after), attributes=attributes)


def receive(
    number: int, name: str, *, source: int, tag: int, size_bytes: int, after: Iterable[int] = ()
) -> Node:
    """Return a message from rank `source`."""
    attributes: dict[str, Value] = {
        "comm_type": int(NodeType.RECEIVE), "comm_size": size_bytes, "comm_src": source, "comm_tag": tag
    }  # fmt: skip
    return Node(number, name, NodeType.RECEIVE, tuple(after), attributes=attributes)


def collective(
    number: int, name: str, what: CollectiveType, size_bytes: int, after: Iterable[int] = ()
) -> Node:
    attributes: dict[str, Value] = {"is_cpu_op": False, "comm_type": int(what), "comm_size": size_bytes}
    return Node(number, name, NodeType.COLLECTIVE, tuple(after), attributes=attributes)


def encode(file: EtFile) -> bytes:
    """Return the bytes of a file: the same for equal content."""
    metadata = _messages()["GlobalMetadata"](version=file.version)
    for name, value in file.metadata.items():
        _put(metadata.attr.add(), name, value)
    return b"".join(
        _framed(message.SerializeToString()) for message in (metadata, *map(_message, file.nodes))
    )


def write(path: Path, file: EtFile) -> None:
    """Write one rank's file. Raises ArtefactError when it cannot be written."""
    try:
        path.write_bytes(encode(file))
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error.strerror}") from None


def read(path: Path) -> EtFile:
    """Read one rank's file, as far as its messages are complete. Raises ArtefactError: no such file, or no execution trace."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None
    return decode(data, str(path))


def decode(data: bytes, name: str = "the trace") -> EtFile:
    """Decode a file's bytes; `name` is for messages. Raises ArtefactError when a message violates the schema."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415  # optional; `_messages` says so if it is missing

    kinds = _messages()
    frames = _Frames(data, name)
    metadata, nodes = None, []
    for start, frame in frames:
        message = kinds["GlobalMetadata" if metadata is None else "Node"]()
        try:
            message.ParseFromString(frame)
        except DecodeError:
            raise ArtefactError(f"{name}: byte {start}: no Chakra message of {len(frame)} bytes") from None
        if metadata is None:
            metadata = message
        else:
            nodes.append(_node(message))
    if metadata is None:
        if frames.truncated:
            return EtFile((), truncated=True)
        raise ArtefactError(f"{name} is empty: an execution trace begins with its metadata")
    return EtFile(tuple(nodes), metadata.version, dict(map(_get, metadata.attr)), frames.truncated)


class _Frames:
    """Iterator of (first byte, message) of each complete message; `truncated` when the last is incomplete."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._name = data, name
        self.truncated = False

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        at = 0
        while at < len(self._data):
            size, start = 0, at
            for shift in range(0, 36, 7):
                if at == len(self._data):
                    self.truncated = True
                    return
                byte = self._data[at]
                size, at = size | (byte & 127) << shift, at + 1
                if byte < 128:
                    break
            else:
                raise ArtefactError(
                    f"{self._name}: byte {start}: a length of more than 32 bits; this is no execution trace"
                )
            if size > MESSAGE_BYTES_MAX:
                raise ArtefactError(
                    f"{self._name}: byte {start}: a message of {size} bytes, at most {MESSAGE_BYTES_MAX} are read; this is "
                    "probably no execution trace"
                )
            if at + size > len(self._data):
                self.truncated = True
                return
            yield start, self._data[at : at + size]
            at += size


def _framed(message: bytes) -> bytes:
    size, prefix = len(message), bytearray()
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    return bytes([*prefix, size]) + message


def _message(node: Node) -> Any:
    message = _messages()["Node"](
        id=node.id,
        name=node.name,
        type=node.type,
        ctrl_deps=node.ctrl_deps,
        data_deps=node.data_deps,
        start_time_micros=node.start_us,
        duration_micros=node.duration_us,
    )
    if node.io is not None:
        for target, (values, shapes, types) in zip((message.inputs, message.outputs), node.io, strict=True):
            target.SetInParent()
            target.values, target.shapes, target.types = values, shapes, types
    for name, value in node.attributes.items():
        _put(message.attr.add(), name, value)
    return message


def _put(attribute: Any, name: str, value: Value) -> None:
    """Set an attribute to a value. Raises ArtefactError: the value fits no member."""
    attribute.name = name
    try:
        if isinstance(value, list):
            target = getattr(attribute, f"{_kind(value)}_list")
            target.SetInParent()
            target.values.extend(value)
        elif isinstance(value, int) and _fits(INTEGERS.get(name), value):
            setattr(attribute, INTEGERS[name], value)
        else:
            setattr(attribute, f"{_kind([value])}_val", value)
    except (TypeError, ValueError):
        raise ArtefactError(
            f"attribute `{name}` cannot be {value!r:.80}: no member of Chakra's schema holds that"
        ) from None


def _kind(values: list[Any]) -> str:
    """Return the kind of the member that holds all values."""
    kinds = {type(each) for each in values}
    if kinds == {int}:
        return "int64" if all(-(1 << 63) <= each < 1 << 63 for each in values) else "uint64"
    names = {bool: "bool", float: "double", str: "string", bytes: "bytes"}
    return names[kinds.pop()] if len(kinds) == 1 else "double" if kinds == {int, float} else "string"


def _fits(member: str | None, value: int) -> bool:
    ranges = {
        "int64_val": (-(1 << 63), 1 << 63),
        "uint64_val": (0, 1 << 64),
        "int32_val": (-(1 << 31), 1 << 31),
    }
    if member == "bool_val" or isinstance(value, bool):
        return member == "bool_val" and isinstance(value, bool)
    least, beyond = ranges.get(member or "", (0, 0))
    return least <= value < beyond


def _get(attribute: Any) -> tuple[str, Value]:
    member = attribute.WhichOneof("value")
    value: Any = getattr(attribute, member) if member else ""
    return attribute.name, list(value.values) if str(member).endswith("_list") else value


def _node(message: Any) -> Node:
    io = None
    if message.HasField("inputs") or message.HasField("outputs"):
        io = tuple((part.values, part.shapes, part.types) for part in (message.inputs, message.outputs))
    return Node(
        id=message.id,
        name=message.name,
        type=message.type,
        data_deps=tuple(message.data_deps),
        ctrl_deps=tuple(message.ctrl_deps),
        start_us=message.start_time_micros,
        duration_us=message.duration_micros,
        attributes=dict(map(_get, message.attr)),
        io=io,  # type: ignore[arg-type]  # two of three, by construction
    )


@cache
def _messages() -> dict[str, Any]:
    """Return the schema's messages. Raises UsageError when protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415  # optional
    except ImportError:
        raise extras.missing("google", "reading and writing Chakra traces") from None
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    string, uint64, enum, message, many = 9, 4, 13, 11, 3

    def add(owner: Any, name: str, number: int, kind: int, *, repeated: bool = False, of: str = "") -> Any:
        known = owner.field.add(name=name, number=number, type=kind, label=many if repeated else 1)
        if of:
            known.type_name = f".ChakraProtoMsg.{of}"
        return known

    attribute = file.message_type.add(name="AttributeProto")
    add(attribute, "name", 1, string)
    add(attribute, "doc_string", 2, string)
    attribute.oneof_decl.add(name="value")
    for position, (name, kind) in enumerate(SCALARS):
        title = f"{name.capitalize()}List"
        add(file.message_type.add(name=title), "values", 1, kind, repeated=True)
        add(attribute, f"{name}_val", 3 + 2 * position, kind).oneof_index = 0
        add(attribute, f"{name}_list", 4 + 2 * position, message, of=title).oneof_index = 0
    metadata = file.message_type.add(name="GlobalMetadata")
    add(metadata, "version", 1, string)
    add(metadata, "attr", 2, message, repeated=True, of="AttributeProto")
    info = file.message_type.add(name="IOInfo")
    for number, name in enumerate(("values", "shapes", "types"), 1):
        add(info, name, number, string)
    node = file.message_type.add(name="Node")
    # An enum on the wire is an unsigned number, so unknown types are preserved.
    for number, (name, kind, repeated) in enumerate(
        (("id", uint64, False), ("name", string, False), ("type", enum, False), ("ctrl_deps", uint64, True),
         ("data_deps", uint64, True), ("start_time_micros", uint64, False), ("duration_micros", uint64, False)), 1
    ):  # fmt: skip
        add(node, name, number, kind, repeated=repeated)
    add(node, "inputs", 8, message, of="IOInfo")
    add(node, "outputs", 9, message, of="IOInfo")
    add(node, "attr", 10, message, repeated=True, of="AttributeProto")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in ("GlobalMetadata", "Node")
    }
