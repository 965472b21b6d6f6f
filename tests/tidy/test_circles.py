"""Which files import one another in a circle: such files can only be read, tested and changed together."""

import ast
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATH = re.compile(r"\b(?:crate|super)(?:::\w+)+")
USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.MULTILINE)
DEFINITION = r"\b(?:fn|struct|enum|union|trait|type|const|static|macro_rules!|mod)"
TESTS = re.compile(
    r"^#\[cfg\((?:all\()?test.*?\)\]\n(?:#\[.*\]\n)*mod \w+ \{.*?^\}", re.MULTILINE | re.DOTALL
)
WORDS = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def files(folder, suffix):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if name.endswith(suffix) and (ROOT / name).exists()]


def circles(edges):
    """The strongly connected components of more than one file (Tarjan, 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in sorted(edges.get(file, ())):
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            at = stack.index(file)
            component, stack[at:] = stack[at:], []
            if len(component) > 1:
                found.append(sorted(component))

    for file in sorted(edges):
        if file not in index:
            visit(file)
    return found


def expand(tree):
    """`a::{b, c::d as e}` as pairs of a path and the name that it gets here."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    if not brace:
        path, _, name = (part.strip() for part in tree.partition(" as "))
        segments = path.split("::")
        return [(segments, name or segments[-1])]
    inner, depth, start = rest.rstrip().removesuffix("}"), 0, 0
    parts = []
    for at, character in enumerate(inner):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
    parts.append(inner[start:])
    prefix = [segment for segment in head.strip().split("::") if segment]
    return [
        (prefix + [segment for segment in path if segment != "self"], prefix[-1] if name == "self" else name)
        for part in parts
        if part.strip()
        for path, name in expand(part)
    ]


class Crate:
    """The modules of a crate without its tests, and what each of them imports."""

    def __init__(self, sources):
        """`sources`: the text of each file, by its path below `src`."""
        self.sources, self.uses = {}, {}
        for name, text in sources.items():
            parts = name.removesuffix(".rs").split("/")
            module = tuple(parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts)
            code = WORDS.sub("", TESTS.sub("", text))
            self.sources[module] = (name, code)
            self.uses[module] = [
                (bool(public), path, known)
                for public, tree in USE.findall(code)
                for path, known in expand(tree)
            ]

    def targets(self, module, path, seen=()):
        """The modules that define what `path` names in `module`: re-exports are followed."""
        at, rest = module, list(path)
        if rest[0] == "crate":
            at, rest = (), rest[1:]
        elif rest[0] not in ("super", "self") and (*at, rest[0]) not in self.sources:
            return set()
        while rest and rest[0] in ("super", "self"):
            at, rest = (at[:-1] if rest[0] == "super" else at), rest[1:]
        while rest and (*at, rest[0]) in self.sources:
            at, rest = (*at, rest[0]), rest[1:]
        if not rest or (at, rest[0]) in seen or at not in self.sources:
            return {at} & set(self.sources)
        seen = (*seen, (at, rest[0]))
        if rest[0] == "*" or re.search(rf"{DEFINITION}\s+{rest[0]}\b", self.sources[at][1]):
            return {at}
        passed_on = [
            [*path[:-1], rest[0] if known == "*" else path[-1]]
            for _, path, known in self.uses[at]
            if known in (rest[0], "*")
        ]
        return set().union(*(self.targets(at, path, seen) for path in passed_on)) or {at}

    def edges(self):
        """By file: the files that it imports from. What a module only passes on, it does not import."""
        edges = defaultdict(set)
        for module, (name, code) in self.sources.items():
            children = {(*module, child) for child in re.findall(r"\bmod (\w+);", code)}
            paths = [path for public, path, _ in self.uses[module] if not (public and children)]
            paths += [path.split("::") for path in PATH.findall(USE.sub("", code))]
            for path in paths:
                edges[name] |= {self.sources[target][0] for target in self.targets(module, path)}
            edges[name].discard(name)
        return edges


CRATES = sorted(path.parent.name for path in (ROOT / "crates").glob("*/Cargo.toml"))


@pytest.mark.parametrize("name", CRATES)
def test_rust_files_do_not_import_in_circles(name):
    """Whoever changes one file of a crate would have to know all files of the circle."""
    folder = ROOT / "crates" / name / "src"
    crate = Crate(
        {str(file.relative_to(folder)): file.read_text() for file in files(f"crates/{name}/src", ".rs")}
    )
    assert circles(crate.edges()) == []


def imports(name, file, modules):
    """The modules among `modules` that `file`, which is the module `name`, imports, anywhere but for type checkers alone."""
    tree = ast.parse(file.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & modules or {node.module}
    return found & modules - {name}


def test_python_files_do_not_import_in_circles():
    """An import would fail or not, by which file comes first, and none of the files could be understood alone."""
    found = {}
    for file in files("python/hocket", ".py"):
        parts = file.relative_to(ROOT / "python").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    modules = {*found, "hocket._native"}
    assert circles({name: imports(name, file, modules) for name, file in found.items()}) == []


def test_a_circle_is_found():
    """The tests above could pass on anything: imports through re-exports, in nested braces and in paths count; tests do not."""
    crate = Crate(
        {
            "lib.rs": "mod a;\nmod b;\nmod c;\npub use a::A;\n",
            "a.rs": "use crate::b::{inner::{B}, self};\npub struct A;\n",
            "b/mod.rs": "pub mod inner;\nuse crate::c;\n",
            "b/inner.rs": "pub struct B;\nfn f() { crate::A::new() }\n",
            "c.rs": '#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n// crate::a::A\nstatic C: &str = "crate::a::A";\n',
        }
    )
    edges = crate.edges()
    assert edges == {
        "lib.rs": set(),
        "a.rs": {"b/inner.rs", "b/mod.rs"},
        "b/mod.rs": {"c.rs"},
        "b/inner.rs": {"a.rs"},
        "c.rs": set(),
    }
    assert circles(edges) == [["a.rs", "b/inner.rs"]]
