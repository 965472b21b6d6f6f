"""What users and files of theirs rely on: public signatures, help, settings, promises, and what is read or refused."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import itertools
import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import msgspec
import numpy as np

from hocket import errors, testing
from hocket.artefacts import files, promise
from hocket.artefacts.plan import Plan
from hocket.members.journal import Journal
from hocket.policies import READY_MADE
from hocket.policy.topology import Topology
from hocket.settings import Settings
from hocket.testing.policies import stages_of
from hocket.training.checkpoint import saved
from tests.cli.commands import commands, help_of
from tests.planning.test_plan_check import FIRST, mixed
from tests.unchanged.records import Texts, as_json

ROOT = Path(__file__).parents[2]
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
SOURCE = re.compile(r'^source "(?:.*/)?(.*)" \d+$', re.MULTILINE)
IMPORTS = re.compile(r"^\s*(?:>>> )?(?:import (hocket[\w.]*)|from (hocket[\w.]*) import (\w+))", re.MULTILINE)

TOPOLOGIES = {
    "alone": Topology.even(world=1),
    "pair": Topology.even(world=2),
    "four hosts": Topology.even(world=4),
    "odd": Topology.even(world=5, racks=2, trunk_bit_per_s=1e9),
    "two hosts of three": Topology.even(world=6, racks=2, hosts_per_rack=1),
    "two racks": Topology.even(world=8, racks=2, trunk_bit_per_s=1e8),
}
POLICY_STEPS, POLICY_ELEMENTS = 2, 300


def policies() -> Texts:
    """Of every ready-made policy on every topology, the programs after each pass, and bits that the reference executor makes."""
    for name, policy in READY_MADE.items():
        for where, topology in TOPOLOGIES.items():
            for stage, program in stages_of(policy(), topology, POLICY_ELEMENTS).items():
                yield f"{name}, {where}, {stage}", _placeless(program)
            result = testing.run(policy(), topology=topology, steps=POLICY_STEPS)
            digest = hashlib.sha256()
            for step in result.gradients:
                for rank in step:
                    for each in sorted(rank):
                        digest.update(np.ascontiguousarray(rank[each]).tobytes())
            programs = "\n".join(map(_placeless, result.programs))
            yield f"{name}, {where}, run", f"gradients {digest.hexdigest()}\n{programs}"


def _placeless(program: object) -> str:
    """Of the lines of Python that ops come from, the file's name alone: checkouts lie elsewhere, and lines move."""
    return SOURCE.sub(r'source "\1"', str(program))


def modules() -> list[str]:
    found = {"hocket"}
    for path in sorted(
        [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.py")]
    ):
        for module, within, name in IMPORTS.findall(path.read_text()):
            inner = f"{within}.{name}".replace(".", "/")
            is_module = within and any((ROOT / "python" / f"{inner}{end}").exists() for end in (".py", ""))
            found.add(module or (f"{within}.{name}" if is_module else within))
    return sorted(found)


def signatures() -> Texts:
    for name in modules():
        try:
            module = importlib.import_module(name)
        except (ModuleNotFoundError, errors.Error):
            yield from _from_source(name)
            continue
        own = [each for each, value in vars(module).items() if _is_own(each, value, name)]
        offered = sorted(getattr(module, "__all__", own))
        yield name, "\n".join(offered)
        for each in offered:
            yield f"{name}.{each}", "\n".join(_described(each, getattr(module, each)))


def _from_source(name: str) -> Texts:
    module = _sources().modules_collection[name]
    offered = sorted(str(each) for each in module.exports or ())
    yield name, "\n".join(offered)
    for each in offered:
        found = module[each]
        found = found.final_target if found.is_alias else found
        if found.is_module:  # a function's name is also that of its module
            found = found[each]
        inner = [found.members[each] for each in sorted(found.members) if found.is_class and each[0] != "_"]
        yield f"{name}.{each}", "\n".join(map(_written, [found, *inner]))


@cache
def _sources() -> griffe.GriffeLoader:
    loader = griffe.GriffeLoader(search_paths=[str(ROOT / "python")], allow_inspection=False)
    loader.load("hocket")
    loader.resolve_aliases(implicit=False, external=False)
    return loader


def _written(found: Any) -> str:
    return found.signature() if found.is_function else f"{found.kind.value} {found.name}{_made_by(found)}"


def _made_by(found: Any) -> str:
    return found.signature().removeprefix(found.name) if found.is_class else ""


def _is_own(name: str, value: object, module: str) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", None) == module


def _described(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"class {name}({', '.join(each.__name__ for each in value.__bases__)}){_signature(value)}"
        for member in sorted(each for each in dir(value) if not each.startswith("_")):
            found = inspect.getattr_static(value, member)
            kind = type(found).__name__
            target = found.fget if isinstance(found, property) else getattr(value, member)
            yield f"  {kind} {member}{_signature(target) if callable(target) else ''}"
    elif callable(value):
        yield f"{type(value).__name__} {name}{_signature(value)}"
    else:
        yield f"{type(value).__name__} {name}"


def _signature(value: Any) -> str:
    try:
        return ADDRESS.sub("", str(inspect.signature(value)))
    except (ValueError, TypeError):
        return "(…)"


def helps() -> Texts:
    for name, command in commands().items():
        yield name, help_of(name, command)


def settings() -> Texts:
    """Names, types, defaults, parsers and sentences."""
    for each in fields(Settings):
        name, parse = each.metadata["name"], each.metadata["parse"]
        row = {"field": each.name, "type": each.type, "default": repr(each.default)}
        row |= {
            "parse": ADDRESS.sub("", parse.__qualname__),
            "takes": parse.__doc__,
            "doc": each.metadata["doc"],
        }
        yield name, as_json(row | {"type": str(each.type)})


def promises() -> Texts:
    """Meanings of words, and words that are refused."""
    numbers = ("", ",codec=bf16", ",merge=2", ",delay=1", ",epsilon=0.1", ",merge=0", ",speed=1", ",merge=x")
    for level, number in itertools.product((*promise.WORDS, "none"), numbers):
        yield level + number, tried(lambda words=level + number: repr(promise.promise_of(words)))


def tried(does: Callable[[], str]) -> str:
    """What it returns, or class and words of what it raises."""
    try:
        return does()
    except (errors.Error, msgspec.MsgspecError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def versions() -> Texts:
    """Plan files of both versions and of none."""
    second = msgspec.to_builtins(mixed())
    trees = {
        "version 1": FIRST,
        "version 1, unsaid": {name: FIRST[name] for name in FIRST if name != "version"},
    }
    trees |= {"version 2": second, "version 1 with a field more": FIRST | {"speed": 9}}
    trees |= {"version 2 with a field more": second | {"speed": 9}, "version 3": second | {"version": 3}}
    trees |= {"version 0": second | {"version": 0}, "version 2 without buckets": second | {"buckets": []}}
    trees |= {"version 2 as 1": second | {"version": 1}, "version 2, exact": second | {"promise": "exact"}}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plan.json"
        for name, tree in trees.items():
            path.write_bytes(msgspec.json.encode(tree))
            read = tried(lambda: as_json(msgspec.to_builtins(files.read(path, Plan))))
            yield name, read.replace(directory, "")


def checkpoints() -> Texts:
    """State as `hk.state_dict` saved it, by hand: what is read of it, and what is refused."""
    row = {"name": "residual", "shared": False, "parameter": "w", "start": 0, "stop": 2, "rows": "array"}
    bucket = {"name": "factor", "shared": True, "ranges": [["w", 0, 2]], "rows": "array"}
    turns = {"version": 1, "rank": 0, "world": 2, "steps": 3, "parameters": [row], "buckets": [bucket]}
    trees: dict[str, Any] = {"version 1": turns, "bare": {"rank": 0, "world": 2}, "nothing": {}, "a list": []}
    trees |= {f"version {each}": turns | {"version": each} for each in (0, 2, 9)}
    trees |= {
        "a field more": turns | {"speed": 9},
        "no rank": {name: turns[name] for name in turns if name != "rank"},
    }
    trees |= {"no bytes": turns | {"parameters": [row | {"rows": "words"}]}}
    trees |= {"delays of nothing": turns | {"delays": {}}}

    def array(leaf: Any) -> Any:
        return np.arange(8, dtype=np.uint8).reshape(2, 4) if leaf == "array" else leaf

    def read(tree: Any) -> str:
        return as_json(saved.plain(saved.read_back(tree, array), lambda each: each.tolist()))

    for name, tree in trees.items():
        yield name, tried(lambda tree=tree: read(tree))


HEAD = (
    b'{"served":{"host":"127.0.0.1","coordinator":"127.0.0.1:4711","secret":"00","command":["python","train.py"],'
    b'"settings":{"HOCKET_TIMEOUT_S":"5"},"members_min":1,"members_max":4,"replacements":[0,0]},'
    b'"generation":{"number":0,"members":[0,1],"holders":[],"next_member":2,"epochs_before":0}}\n'
)
"""The first line of a journal of version 1."""


def _record(version: int, epoch: int, base: int, members: tuple[int, ...] = (0, 1)) -> bytes:
    """A decision, as `crates/protocol/src/membership/journal.rs` says."""
    body = struct.pack("<BBQQQ", version, 0, epoch, base, 0)
    for each in (members, (), ()):
        body += struct.pack(f"<I{len(each)}Q", len(each), *each)
    return struct.pack("<II", len(body), _crc32c(body)) + body


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def journals() -> Texts:
    """Files that a launcher left behind: what is read of each, and what is refused."""
    first = _record(1, 1, 0)
    damaged = bytes([*first[:20], first[20] ^ 1, *first[21:]])
    made = {"no records": HEAD, "a record": HEAD + first, "torn": HEAD + first + first[:9]}
    made |= {"damaged in the middle": HEAD + damaged + first, "epochs in disorder": HEAD + first + first}
    made |= {f"version {each}": HEAD + _record(each, 1, 0) + first for each in (0, 2, 9)}
    made |= {"not a journal": b"hello\n", "empty": b"", "a field more": HEAD.replace(b"{", b'{"speed":9,', 1)}
    made |= {"without members": HEAD.replace(b'"members":[0,1],', b"")}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal"
        path.write_bytes(HEAD + first)
        opened = Journal.reopen(path)
        opened.change(opened.generation)
        yield "as it is written", path.read_text(errors="backslashreplace")
        opened.close(done=False)

        def read() -> str:
            journal = Journal.reopen(path)
            try:
                whole = msgspec.to_builtins({"served": journal.served, "generation": journal.generation})
                return as_json(whole | {"records": journal.records.hex()})
            finally:
                journal.close(done=False)

        for name, content in made.items():
            path.write_bytes(content)
            yield name, tried(read).replace(directory, "")
