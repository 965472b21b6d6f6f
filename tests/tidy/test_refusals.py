"""The table of refused pairs is what the code raises, and what the docs say."""

import ast
import os
from pathlib import Path

from hocket import refusals

ROOT = Path(__file__).parents[2]


def page():
    """`docs/refused.md`, from the table."""
    lines = [
        "# Features that exclude one another\n",
        f"Hocket refuses {len(refusals.REFUSED)} pairs of features that this table lists; other checks name theirs where they",
        "raise. Names in braces stand for what the error names.\n",
        "| feature | with | error | hint |\n| --- | --- | --- | --- |",
    ]
    for (one, other), message in refusals.REFUSED.items():
        why, _, hint = message.partition("\nhint: ")
        lines.append(f"| {one} | {other} | {why} | {hint} |")
    return "\n".join(lines) + "\n"


def raised():
    """Pairs that code asks the table for; a value of `asked` is a feature too."""
    found = set()
    for path in (ROOT / "python/hocket").rglob("*.py"):
        text = path.read_text()
        if (path.name == "refusals.py" and path.parent.name == "hocket") or "refus" not in text:
            continue
        asks = {"refused": None, "refusal": refusals.ELASTIC} if "hocket.refusals" in text else {}
        if "elastic.refusals import" in text:
            asks["refusal"] = refusals.ELASTIC
        side = refusals.COMPILED if path.name == "compiled_refusals.py" else refusals.ELASTIC
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in asks:
                first = asks[node.func.id]
                words = [
                    getattr(refusals, each.id, None) if isinstance(each, ast.Name) else each.value
                    for each in node.args
                ]
                pair = (first, *words) if first else tuple(words)
                if None not in pair:
                    found.add(pair)
            if isinstance(node, ast.Assign) and path.name.endswith("refusals.py"):
                found |= {(side, key.value) for key in getattr(node.value, "keys", ())}
    return found


def test_the_table_is_what_the_code_raises():
    """A row would outlive its refusal, or a refusal end in a KeyError."""
    assert raised() == set(refusals.REFUSED)


def test_the_page_is_the_table():
    """HOCKET_BLESS=1 writes it anew."""
    path = ROOT / "docs/refused.md"
    if os.environ.get("HOCKET_BLESS") == "1":
        path.write_text(page())
    assert path.read_text() == page()
