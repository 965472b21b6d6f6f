"""Sizes of classes: one is small enough to be understood as a whole, or listed here until it is."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
METHODS_MAX, ATTRIBUTES_MAX = 25, 20
"""More methods, or attributes that a class's own methods assign, are several things in one class."""

LARGER = {
    "torch/backend/group.py::Group": (35, 4),
    "torch/framework.py::Torch": (37, 15),
}
"""Numbers of methods and attributes of classes that are larger. They may only fall: no class is added, none grows, and one that has
become small enough is removed."""


def sizes(tree: ast.Module) -> dict[str, tuple[int, int]]:
    """Numbers of methods and attributes by class."""
    return {
        each.name: (
            sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in each.body),
            len({part.attr for part in ast.walk(each) if assigned(part)}),
        )
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef)
    }


def assigned(node: ast.AST) -> bool:
    """Whether this is `self.name` where a value is assigned to it."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def larger(tree: ast.Module) -> dict[str, tuple[int, int]]:
    return {
        name: (methods, attributes)
        for name, (methods, attributes) in sizes(tree).items()
        if methods > METHODS_MAX or attributes > ATTRIBUTES_MAX
    }


def test_classes_are_of_one_concept():
    """A reader would have to hold the state of several things in mind to change one."""
    found = {
        f"{path.relative_to(ROOT / 'python/hocket')}::{name}": size
        for path in sorted((ROOT / "python/hocket").rglob("*.py"))
        for name, size in larger(ast.parse(path.read_text(), str(path))).items()
    }
    assert found == LARGER


def test_no_class_of_training_is_larger():
    """The list would take in what has been split."""
    assert [name for name in LARGER if name.startswith("training/")] == []


def test_a_large_class_is_found():
    """The rule would pass over what it is there for."""
    methods = "".join(f"\n    def m{at}(self): self.a.b = self.c[0] = 1" for at in range(METHODS_MAX))
    targets = ", ".join(f"self.x{at}" for at in range(ATTRIBUTES_MAX - 1))
    whole = f"class A:{methods[:-1]}1; {targets} = call(); self.x0 += 1; self.y: int = 2"
    assert sizes(ast.parse(whole)) == {"A": (METHODS_MAX, ATTRIBUTES_MAX)}
    assert larger(ast.parse(whole)) == {}
    assert larger(ast.parse(f"{whole}\n    async def one_more(self): pass")) == {
        "A": (METHODS_MAX + 1, ATTRIBUTES_MAX)
    }
    assert larger(ast.parse(f"{whole}\n    z = 1\n    def m0(self):\n        with f() as self.z: pass")) != {}
    assert larger(ast.parse(f"{whole}; self.z = 3")) == {"A": (METHODS_MAX, ATTRIBUTES_MAX + 1)}
