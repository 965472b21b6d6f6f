"""The table of refused pairs is what the code raises, and what the docs say."""

import ast
import os
from pathlib import Path

import pytest

from hocket import refusals
from hocket.errors import UsageError

ROOT = Path(__file__).parents[2]


def page():
    """`docs/refused.md`, from the tables."""
    rows = [(one, other, message.partition("\nhint: ")) for (one, other), message in refusals.REFUSED.items()]
    rows += [
        (f"frameworks without `{name}`", ", ".join(needing), message.partition("\nhint: "))
        for name, (message, needing) in refusals.LACKS.items()
    ]
    lines = [
        "# Features that exclude one another\n",
        f"Hocket refuses the pairs of features in {len(refusals.REFUSED)} rows of this table, and what {len(refusals.LACKS)} "
        "capabilities need of a",
        "framework that lacks them: JAX and TensorFlow lack all but `compiled`, Keras on PyTorch `members`, `optimizer` and",
        "`compiled`, DDP's hook `optimizer`, PyTorch on a device `host`. Names in braces stand for what the error names.\n",
        "| feature | with | error | hint |\n| --- | --- | --- | --- |",
        *(f"| {one} | {other} | {why} | {hint} |" for one, other, (why, _, hint) in rows),
    ]
    return "\n".join(lines) + "\n"


def named(node):
    """The word of a constant of the tables, or of a text."""
    word = getattr(refusals, node.id, None) if isinstance(node, ast.Name) else getattr(node, "value", None)
    return word if isinstance(word, str) else None


def raised():
    """Pairs that code asks the table for, and features that settings, plans and policies have."""
    pairs, features = set(), set()
    for path in (ROOT / "python/hocket").rglob("*.py"):
        text = path.read_text()
        if path == Path(refusals.__file__) or "hocket.refusals" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "refused":
                pairs.add(tuple(map(named, node.args)))
            if isinstance(node, ast.Tuple) and len(node.elts) == 2:
                features.add(named(node.elts[0]))
            if isinstance(node, ast.Dict):
                features |= set(map(named, filter(None, node.keys)))
    return {pair for pair in pairs if None not in pair}, features


def test_the_tables_are_what_the_code_raises():
    """A row would outlive its refusal, or a refusal end in a KeyError."""
    pairs, features = raised()
    by_feature = {
        (one, other) for one, other in refusals.REFUSED if one == refusals.ELASTIC and other in features
    }
    assert pairs <= set(refusals.REFUSED)
    assert pairs | by_feature == set(refusals.REFUSED)
    assert set(refusals.LACKS) == set(refusals.ABLE)
    assert {each for _, needing in refusals.LACKS.values() for each in needing} <= features


@pytest.mark.parametrize(
    ("able", "refused"),
    [
        (refusals.ABLE, set()),
        (refusals.ABLE - {"optimizer"}, {"parameter servers", "gates"}),
        (refusals.ABLE - {"layers"}, {"gates", "HOCKET_REORDER"}),
        (frozenset(), {"parameter servers", "gates", "HOCKET_REORDER", "elastic jobs"}),
    ],
)
def test_what_a_framework_lacks_is_refused_by_name(able, refused):
    """Gradients would be applied by nobody, or ranks wait for layers that never come."""
    asked = {"parameter servers", "gates", "HOCKET_REORDER", "elastic jobs"}
    found = set()
    for feature in asked:
        try:
            refusals.check_able("a toy", able, [(feature, {})])
        except UsageError:
            found.add(feature)
    assert found == refused


def test_the_page_is_the_table():
    """HOCKET_BLESS=1 writes it anew."""
    path = ROOT / "docs/refused.md"
    if os.environ.get("HOCKET_BLESS") == "1":
        path.write_text(page())
    assert path.read_text() == page()
