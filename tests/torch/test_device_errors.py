"""Calls of a device that fail, each in its turn: who is told what, and what stays behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.settings import Settings
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
    assert {call.split()[0] for call, *_ in own} == set(CALLS)
    assert [call for call, *_ in other] == [call for call, *_ in own]
    assert [each for each in own if each[1:] != [ERROR, 0, True]] == []
    assert [each for each in other if "rank 1" not in each[1] or each[2:] != [0, True]] == []


@pytest.mark.parametrize(("call", "at"), [("share", 1), ("made", 1), ("down", 2), ("up", 2), ("received", 2)])
def test_each_error_in_training_is_named(call: str, at: int, tmp_path: Path) -> None:
    """Broken: ranks would wait for gradients that a device cannot copy, or not learn whose it is."""
    other, own = each_rank("training", tmp_path, call, str(at))
    assert ERROR in own[0]
    assert "rank 1" in other[0]
    assert own[1]
    assert other[1]
