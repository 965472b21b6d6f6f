"""`python -m benches frameworks` in an environment without JAX."""

import importlib.util

import pytest
from click.testing import CliRunner

from benches.commands.frameworks import command
from hocket.errors import MissingExtraError

pytestmark = pytest.mark.tools


def test_without_jax_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: whoever runs the benchmarks in the usual environment would get a traceback out of one of them."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jax" else found(name))
    ended = CliRunner().invoke(command, ["--row", "adapter"])
    assert isinstance(ended.exception, MissingExtraError)
    assert str(ended.exception).startswith(
        "python -m benches frameworks needs jax, which is not installed\nhint: "
    )
