"""What several of these tests need."""

import socket
from pathlib import Path

import pytest


@pytest.fixture
def port() -> int:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        number: int = reserved.getsockname()[1]
        return number


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where jobs of this test are found, and no others."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path
