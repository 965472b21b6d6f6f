"""What several of these tests need."""

import socket

import pytest


@pytest.fixture
def port() -> int:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        number: int = reserved.getsockname()[1]
        return number
