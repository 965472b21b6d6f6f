"""The backend `hocket` and the hooks of DDP and FSDP2 on a device on which each order that is not kept goes wrong."""

from __future__ import annotations

from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from hocket.settings import Settings
from tests.support import ranks
from tests.support.drawn import cases
from tests.torch import hostile
from tests.torch.device_scripts import PLANTED
from tests.torch.device_training_scripts import WAYS

pytestmark = pytest.mark.devices

SHARE = 56
SEEDS = cases(SHARE)
SETTINGS = Settings(timeout_s=60, start_timeout_s=60, sentinel=False)


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    """The device, built before ranks begin to wait for each other."""
    hostile.build()


def each_rank(
    function: str,
    world: int,
    tmp_path: Path,
    *arguments: str,
    of: str = "device_scripts",
    out: BytesIO | None = None,
) -> list[Any]:
    ended = ranks.run(
        f"tests.torch.{of}:{function}",
        world,
        tmp_path,
        str(tmp_path / "store"),
        *arguments,
        settings=SETTINGS,
        out=out,
    )
    assert None not in ended.returned, ended.output
    return ended.returned


@pytest.mark.parametrize(("world", "hosts"), [(2, 1), (3, 3), (4, 2)])
def test_calls_have_the_bits_of_the_cpu(
    world: int, hosts: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broken: a collective would read a tensor before it is made, or its result would be read before it is there."""
    with capsys.disabled() if SEEDS > SHARE else nullcontext():
        found = each_rank("calls", world, tmp_path, str(hosts), str(SEEDS), out=ranks.Shown())
    assert found == [[]] * world


@pytest.mark.parametrize("order", PLANTED)
def test_every_order_is_needed(order: str, tmp_path: Path) -> None:
    """Broken: the test above would not notice that an order is not kept."""
    found = each_rank("planted", 2, tmp_path, order)
    assert any(found), f"nobody notices: {order}"


def test_a_device_without_streams(tmp_path: Path) -> None:
    """Broken: Apple's device would copy before work has ended."""
    assert each_rank("streamless", 2, tmp_path) == [[]] * 2


@pytest.mark.parametrize(
    ("backend", "cpu"),
    [
        ("hocket", "hocket"),
        ("cpu:hocket,hostile:hocket", "hocket"),
        ("cpu:gloo,hostile:hocket", "gloo"),
        ("hostile:hocket,cpu:gloo", "gloo"),
    ],
)
def test_other_backends_beside_it(backend: str, cpu: str, tmp_path: Path) -> None:
    """Broken: `cpu:gloo,cuda:hocket` would move tensors by another backend than it says."""
    for rank, found in enumerate(each_rank("beside", 2, tmp_path, backend)):
        *sums, objects = found
        assert sums == [[cpu, [3.0 * (2 - rank)] * 5], ["hocket", [3.0 * (2 - rank)] * 5]] * 2
        assert objects == [{"rank": 0}, {"rank": 1}]


def test_pytorch_chooses_it(tmp_path: Path) -> None:
    """Broken: meshes of a device that has no backend of its own would be refused."""
    assert each_rank("chosen", 2, tmp_path) == [["hocket", [2.0 * at for at in range(8)]]] * 2


def test_refusals(tmp_path: Path) -> None:
    """Broken: an error would leave the user to find out which tensor is where, or a device that hangs would hang all."""
    for rank, texts in enumerate(each_rank("refused", 2, tmp_path)):
        beside, devices, meta, hangs = texts
        assert (
            f"BackendUsageError: _all_gather_base: tensors on cpu and on hostile:{rank} in one call" in beside
        )
        assert "tensors on hostile:2 and on hostile:1 in one call" in devices
        assert "tensors are on meta, of which this PyTorch has no module" in meta
        assert f"have not come down from hostile:{rank} within" in hangs


def test_models_on_the_cpu_do_without(tmp_path: Path) -> None:
    """Broken: who has no device would pay for those of others. Two calls are less than a ten-thousandth of a step's CPU time."""
    assert max(each_rank("cpu", 2, tmp_path, of="device_training_scripts")) <= 2


@pytest.mark.parametrize("way", WAYS)
def test_models_end_with_the_bits_of_the_cpu(way: str, tmp_path: Path) -> None:
    """Broken: DDP, FSDP2 and the hooks would train another model on a device."""
    assert each_rank("trained", 4, tmp_path, way, of="device_training_scripts") == [[]] * 4
