"""Which tests may look at the clock: those that run alone. And every crate is tested with assertions."""

import ast
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
PARALLEL = ("torch_suite",)
"""Folders that `make test` does not run in two workers."""


def reads_clock(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in CLOCKS
        for part in ast.walk(node)
    )


def is_deadline(test: ast.AST) -> bool:
    """`monotonic() < deadline_s`: a wait that gives up, not a claim."""
    return any(isinstance(part, ast.Name) and part.id.startswith("deadline") for part in ast.walk(test))


def marked(node: ast.AST) -> bool:
    return "timing" in {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def claims(tree: ast.Module) -> list[str]:
    """Functions that assert on a clock, in a file that does not run alone."""
    if any(isinstance(each, ast.Assign) and marked(each) for each in tree.body):
        return []
    return [
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and not any(map(marked, function.decorator_list))
        for node in ast.walk(function)
        if isinstance(node, ast.Assert) and reads_clock(node.test) and not is_deadline(node.test)
    ]


def test_only_tests_that_run_alone_assert_on_time():
    """CI would fail whenever its machine is busy; two runs on a machine would fail each other."""
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).parts[0] not in PARALLEL
        for name in claims(ast.parse(path.read_text(), str(path)))
    ]
    assert found == []


def test_an_assertion_on_time_is_found():
    """The rule would pass over what it is there for."""
    source = """
def test_fast(): assert time.monotonic() - began_s < 1
def test_wait():
    while busy(): assert time.monotonic() < deadline_s
@pytest.mark.timing
def test_rate(): assert size / (perf_counter() - began_s) > 1e9
"""
    assert claims(ast.parse(source)) == ["test_fast"]
    assert claims(ast.parse("pytestmark = pytest.mark.timing\n" + source)) == []


def test_every_crate_is_tested_with_assertions():
    """A sum that overflows, or an invariant that breaks, would pass in the crate that was forgotten."""
    profile = tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"]["bench"]
    exceptions = (crate for name, crate in profile["package"].items() if name != "*")
    assert all(
        crate.get(check, profile[check])
        for crate in (profile, *exceptions)
        for check in ("debug-assertions", "overflow-checks")
    )
