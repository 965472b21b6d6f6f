"""Processes that a test has started, told from those of others on this machine."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[int]]:
    """`started(text)`: ids of processes below this test whose command line has the text: they inherit its environment."""
    mark = f"TEST_TOKEN={uuid.uuid4().hex}"
    monkeypatch.setenv(*mark.split("="))

    def found(text: str) -> list[int]:
        ids = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                inherited = mark.encode() in (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # it has ended
                continue
            if inherited and text.encode() in line:
                ids.append(int(entry.name))
        return ids

    return found
