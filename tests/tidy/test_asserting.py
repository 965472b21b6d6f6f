"""Every test can fail: it asserts, awaits an error, or calls something of the tests that does."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
TESTING = TESTS.parent / "python/hocket/testing"
"""Helpers that are published for tests of users, too."""

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
EXPECTING = ("raises", "warns", "fail")
"""Of pytest: an error that must come."""

Functions = dict[str, list[ast.AST]]


def functions(tree: ast.AST) -> Functions:
    found: Functions = {}
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            found.setdefault(node.name, []).append(node)
    return found


def imported(tree: ast.AST) -> set[str]:
    """Last parts of the modules that a file imports, and of what it imports from them, which may be modules."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module.rpartition(".")[2], *(each.name for each in node.names)}
        elif isinstance(node, ast.Import):
            names |= {each.name.rpartition(".")[2] for each in node.names}
    return names


def asserts(node: ast.AST, known: Functions, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a function asserts or raises, itself or through one of the `known` that it calls; `seen` were looked at."""
    for part in ast.walk(node):
        if isinstance(part, ast.Assert | ast.Raise):
            return True
        if not isinstance(part, ast.Call):
            continue
        called = part.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in EXPECTING or name.startswith("assert_"):
            return True
        if name not in seen and any(asserts(each, known, seen | {name}) for each in known.get(name, ())):
            return True
    return False


def without_assertion(tree: ast.AST, helpers: dict[str, Functions]) -> list[str]:
    """Tests of a file that nothing can make fail; `helpers`: functions of helper modules by the module's name."""
    own = functions(tree)
    known: Functions = {}
    for module in sorted(imported(tree) & helpers.keys()):
        for name, found in helpers[module].items():
            known.setdefault(name, []).extend(found)
    known |= own
    return [
        name
        for name, found in own.items()
        for each in found
        if name.startswith("test_") and not asserts(each, known, frozenset({name}))
    ]


def parsed(path: Path) -> ast.AST:
    return ast.parse(path.read_text(), str(path))


def test_every_test_asserts():
    """A test that asserts nothing would pass whatever the code does."""
    helpers: dict[str, Functions] = {"testing": {}}
    for path in sorted([*TESTS.rglob("*.py"), *TESTING.rglob("*.py")]):
        if path.name.startswith("test_"):
            continue
        # `hocket.testing` lends the functions of its modules under its own name.
        for module in {path.stem} | ({"testing"} if TESTING in path.parents else set()):
            for name, found in functions(parsed(path)).items():
                helpers.setdefault(module, {}).setdefault(name, []).extend(found)
    files = sorted(TESTS.rglob("test_*.py"))
    silent = [
        f"{path.relative_to(TESTS.parent)}: {name}"
        for path in files
        for name in without_assertion(parsed(path), helpers)
    ]
    assert len(files) > 100
    assert silent == []


def test_a_test_that_cannot_fail_is_found():
    """The rule would pass over what it is there for."""
    source = """
from room import enter
def test_silent(): work(); leave(); test_silent()
def test_itself(): assert work()
def test_error():
    with pytest.raises(OSError): work()
def test_helper(): enter(1)
def test_own(): indirect()
def indirect(): checked()
def checked(): assert work()
"""
    helpers = {
        "room": functions(ast.parse("def enter(a):\n    if a: raise ValueError(a)")),
        "other": functions(ast.parse("def leave(): assert 0")),
    }
    assert without_assertion(ast.parse(source), helpers) == ["test_silent"]
