"""Writes `python/hocket/_native.pyi`, the stub of the extension module, from the built module.

    python scripts/native_stub.py                 # of the library that is beside it
    python scripts/native_stub.py dist/NAME.whl   # of the library in a wheel

PyO3 (`experimental-inspect`) leaves descriptions of classes, functions and constants in the library: JSON, each after its length.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).resolve().parent.parent / "python/hocket/_native.abi3.so"
HEADER = """import _typeshed
import builtins
import collections.abc
import os
import typing

import typing_extensions

import hocket.artefacts.plan
import hocket.errors
import hocket.planning.told
import hocket.policy.bucketing
import hocket.training.memory.turns
"""
# Descriptions do not mention the buffer protocol.
BUFFERS = ("Memory", "Window")

Node = dict[str, Any]


def descriptions(library: bytes) -> list[Node]:
    """Descriptions of a library, in one order whatever the linker's."""
    found: list[Node] = []
    for brace in re.finditer(rb'\{"', library):
        start = brace.start()
        end = start + int.from_bytes(library[start - 4 : start], "little")
        # What is no description is preceded by text or code, which makes a large number.
        if end <= len(library):
            try:
                found.append(json.loads(library[start:end]))
            except ValueError:
                continue
    return sorted(
        (each for each in found if "type" in each),
        key=lambda each: (each["name"], "setter" in str(each.get("decorators"))),
    )


class Stub:
    """The text of a stub, and the descriptions that it is made from."""

    def __init__(self, all_of_it: list[Node]) -> None:
        """Write one module with all its members."""
        self._all = all_of_it
        self._names = {each["id"]: each["name"] for each in all_of_it if "id" in each}
        (module,) = (each for each in all_of_it if each["type"] == "module")
        members = [each for each in all_of_it if each.get("id") in module["members"]]
        lines = [repr(module["doc"]), HEADER, *self._members(module)]
        self.text = "\n".join([*lines, *(line for each in members for line in self._member(each))]) + "\n"

    def _members(self, of: Node) -> list[str]:
        return [line for each in self._all if each.get("parent") == of["id"] for line in self._member(each)]

    def _member(self, node: Node) -> list[str]:
        doc = [repr(node["doc"])] if "doc" in node else []
        decorators = [f"@{self._expression(each)}" for each in node.get("decorators", ())]
        match node["type"]:
            case "attribute":
                return [f"{node['name']}: {self._expression(node['annotation'])}", *doc]
            case "function":
                # Of properties, decorators are known by the bare name.
                decorators = [re.sub(r"^@\w+\.(\w+\.setter)$", r"@\1", each) for each in decorators]
                head = f"def {node['name']}({self._arguments(node['arguments'])})"
                return [
                    *decorators,
                    f"{head} -> {self._expression(node['returns'])}:",
                    *indented(doc),
                    "    ...",
                ]
            case _:
                bases = "(typing_extensions.Buffer)" if node["name"] in BUFFERS else ""
                return [
                    *decorators,
                    f"class {node['name']}{bases}:",
                    *indented([*doc, *self._members(node), "..."]),
                ]

    def _arguments(self, node: Node) -> str:
        plain = [self._argument(each) for each in (*node.get("posonlyargs", ()), *node.get("args", ()))]
        named = [self._argument(each) for each in node.get("kwonlyargs", ())]
        return ", ".join([*plain, *(["*"] if named else []), *named])

    def _argument(self, node: Node) -> str:
        annotation = f": {self._expression(node['annotation'])}" if "annotation" in node else ""
        return f"{node['name']}{annotation}{' = ...' if 'default' in node else ''}"

    def _expression(self, node: Node) -> str:
        match node["type"]:
            case "attribute":
                return f"{self._expression(node['value'])}.{node['attr']}"
            case "subscript":
                return f"{self._expression(node['value'])}[{self._expression(node['slice'])}]"
            case "tuple":
                return ", ".join(self._expression(each) for each in node["elts"])
            case "binop":
                return f"{self._expression(node['left'])} | {self._expression(node['right'])}"
            case "id":
                return str(self._names[node["id"]])
            case _:
                # A name; a type that is written in the signature, a constant of type; None.
                return str(node.get("id") or node.get("value"))


def indented(lines: list[str]) -> list[str]:
    """Lines of a body."""
    return [f"    {line}" for line in lines]


def write(built: Path = LIBRARY) -> None:
    """Write the stub of a library, or of the one in a wheel, beside the package's sources."""
    if built.suffix == ".whl":
        with zipfile.ZipFile(built) as wheel:
            library = wheel.read(f"hocket/{LIBRARY.name}")
    else:
        library = built.read_bytes()
    LIBRARY.with_name("_native.pyi").write_text(Stub(descriptions(library)).text)


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
