"""The table of refused pairs is what the code raises, and what the docs say."""

import ast
import os
from pathlib import Path

import pytest

from hocket import refusals
from hocket.errors import UsageError

ROOT = Path(__file__).parents[2]


IN_RUST = ROOT / "crates/wire/src/fabric/endpoint.rs"
WORDED_IN_RUST = {(refusals.TLS, refusals.FABRIC)}
"""Pairs that only the wire can refuse: with `auto` in HOCKET_WIRE, it alone knows whether there is a fabric."""

PAGE = """\
# Features that exclude one another

Hocket refuses {pairs} pairs of features: each is a row of the first table. A pair is two features of which a job, a
plan, a policy or a command can have either alone. Each row has one feature in each column, so the number of rows is the
number of pairs, which is also that of `hocket.refusals.REFUSED`.

Not counted are

- what {lacks} capabilities need of a framework that lacks them, in the second table: JAX and TensorFlow lack all but
  `compiled` and `epochs`, Keras on PyTorch `members`, `optimizer` and `compiled`, DDP's hook `optimizer` and `epochs`,
  PyTorch on a device `host`
- optimizers whose update is not known to be element by element, which neither owners nor parameter servers can step
- limits of one tool by itself: what SimGrid or the closed form do not predict, and what a testbed with a switch does
  not emulate
- two options of a command that answer one question, such as two names of the plan to check
- calls in a wrong order, such as `distribute` within `join`

Names in braces stand for what the error names.

## Pairs

| feature | with | error | hint |
| --- | --- | --- | --- |
{rows}

## What frameworks lack

| frameworks without | cannot have | error | hint |
| --- | --- | --- | --- |
{capabilities}
"""


def page():
    """`docs/refused.md`, from the tables."""
    rows = [(one, other, message.partition("\nhint: ")) for (one, other), message in refusals.REFUSED.items()]
    lacks = [
        (f"`{name}`", ", ".join(needing), message.partition("\nhint: "))
        for name, (message, needing) in refusals.LACKS.items()
    ]
    rows, lacks = (
        [f"| {one} | {other} | {why} | {hint} |" for one, other, (why, _, hint) in table]
        for table in (rows, lacks)
    )
    return PAGE.format(pairs=len(rows), lacks=len(lacks), rows="\n".join(rows), capabilities="\n".join(lacks))


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
    assert pairs | by_feature | WORDED_IN_RUST == set(refusals.REFUSED)
    text = IN_RUST.read_text()
    assert all(f'"{refusals.REFUSED[pair]}"' in text for pair in WORDED_IN_RUST)
    assert set(refusals.LACKS) == set(refusals.ABLE)
    assert {each for _, needing in refusals.LACKS.values() for each in needing} <= features


def test_a_row_is_one_pair():
    """The number of rows would be smaller than that of pairs."""
    pairs = [frozenset(pair) for pair in refusals.REFUSED]
    assert len(set(pairs)) == len(pairs)
    assert not [feature for pair in pairs for feature in pair if "," in feature or " and " in feature]


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
