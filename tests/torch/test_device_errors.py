"""Calls of a device that fail, each in its turn: who is told what, and what stays behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import torch

from hocket.settings import Settings
from hocket.torch.backend import staging
from hocket.torch.backend.staging import Place
from hocket.torch.devices import Accelerator, Synchronous
from tests.support import ranks
from tests.torch import hostile
from tests.torch.failing_device_scripts import CALLS, ERROR

pytestmark = pytest.mark.devices

# Nobody is told by a time-out: it would come after the test's deadline.
SETTINGS = Settings(timeout_s=900, start_timeout_s=60, sentinel=False)


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    """The device, built before ranks begin to wait for each other."""
    hostile.build()


def each_rank(function: str, tmp_path: Path, *arguments: str) -> list[list[object]]:
    where = f"tests.torch.failing_device_scripts:{function}"
    ended = ranks.run(where, 2, tmp_path, str(tmp_path / "store"), *arguments, settings=SETTINGS)
    assert None not in ended.returned, ended.output
    return ended.returned


def test_each_error_in_a_collective_is_named(tmp_path: Path) -> None:
    """Broken: an error of one rank's device would leave another in a wait, or memory pinned, or the device unused."""
    other, own = each_rank("collectives", tmp_path)
    assert {call.split()[0] for call, *_ in own} == set(CALLS) - {"synchronize"}
    assert [call for call, *_ in other] == [call for call, *_ in own]
    assert [each for each in own if each[1:] != [ERROR, 0, True]] == []
    assert [each for each in other if "rank 1" not in each[1] or each[2:] != [0, True]] == []


@pytest.mark.parametrize(
    ("way", "call", "at"),
    [
        ("training", "share", 1),
        ("training", "made", 1),
        ("training", "down", 2),
        ("training", "up", 2),
        ("training", "received", 2),
        ("training", "record", 7),
        ("training", "synchronize", 1),
        ("training", "synchronize", 5),
        ("hooked", "made", 2),
        ("hooked", "down", 2),
        ("hooked", "up", 2),
        ("hooked", "up", 8),
    ],
)
def test_each_error_in_training_is_named(way: str, call: str, at: int, tmp_path: Path) -> None:
    """Broken: ranks would wait for gradients that a device cannot copy, or not learn whose it is."""
    other, own = each_rank(way, tmp_path, call, str(at))
    assert ERROR in own[0]
    assert "rank 1" in other[0]
    assert own[1]
    assert other[1]


class Broken:
    """Event of a device that has failed."""

    def query(self) -> bool:
        raise RuntimeError(ERROR)

    synchronize = query


class Memory(bytearray):
    """Memory of the host, as far as a device needs to know it."""

    address = 1 << 12


def test_a_device_that_has_failed_leaves_no_memory_pinned(caplog: pytest.LogCaptureFixture) -> None:
    """Broken: a process that trains on after its device has failed would lack memory that nobody uses."""
    pinned: set[int] = set()

    def pin(address: int, _size: int) -> Callable[[], None]:
        pinned.add(address)
        return lambda: pinned.remove(address)

    nothing = Synchronous(lambda: None)
    device, memory = Accelerator(torch.device("cpu"), nothing, pin), Memory(8)
    device.array(memory, 0, "f32", (2,))
    device._twins[memory.address].brought = Broken()
    assert pinned
    del memory
    assert not pinned
    with mock.patch.multiple(staging, pinning=lambda _: pin, queue_of=lambda _: nothing):
        place = Place(torch.device("cpu"), Engine())
        block = place.take(8)
        block.last = Broken()
        assert pinned
        place.close()
    assert not pinned
    assert caplog.text.count(ERROR) == 2


class Engine:
    """Registers memory."""

    allocate = Memory
