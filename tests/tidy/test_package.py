"""What is published: one version, and extras of users only."""

import re
import tomllib
from pathlib import Path

import hocket
from hocket.extras import EXTRAS

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_version_is_in_one_place():
    """A release would name one version in the wheel and another in its programs."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert hocket.__version__ == version
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PYPROJECT["project"]
    crates = [tomllib.loads(path.read_text())["package"] for path in (ROOT / "crates").glob("*/Cargo.toml")]
    assert [each["name"] for each in crates if each["version"] != {"workspace": True}] == []
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0].rstrip(",") == version


def test_extras_are_those_of_users():
    """`pip install 'hocket[dev]'` would promise what only this repository needs; a hint would name an extra that is not there."""
    assert set(PYPROJECT["project"]["optional-dependencies"]) == set(EXTRAS.values())
