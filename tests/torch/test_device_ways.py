"""Ways of training on a device, each against the CPU: those of `docs/training.md`, and what guards and drives a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benches.ddp.catalogue import WAYS
from benches.ddp.run import Row
from hocket.settings import Settings
from tests.support import ranks
from tests.torch import hostile

pytestmark = pytest.mark.devices

SETTINGS = Settings(timeout_s=60, start_timeout_s=60)
TOLERANCE = 1e-9

LACKING = {
    "batch norm, evaluated in between": "its kernel gives outputs of other shapes then, which that device does not foresee",
    "batch norm frozen half-way": "the same",
    "sparse gradients of an embedding": "that device has no sparse tensors; rows of a plan are in the scenarios of sessions",
    "activations computed again in backward": "dropout draws when that device runs it, and checkpoints keep what is drawn before",
    "the same, reentrant": "the same",
    "a recurrent network": "that device has no kernel for it",
    "transformer layers with dropout": "attention by other kernels, which round to 2.5e-6",
}
"""Ways of DDP that the tests' device cannot have, or not in the same bits, with the reason."""
ABLE = tuple(name for name in WAYS if name not in LACKING)

SCRIPTS = {
    "clipping of owners' gradients": ("owners_scripts:clipped", "SGD"),
    "accumulation of owners": ("owners_scripts:accumulated", "AdamW"),
    "norms of owners' gradients": ("owners_scripts:norms",),
    "late gradients": ("delayed_scripts:against_the_reference", "4"),
    "a GradScaler, late": ("scaler_scripts:late_against_the_reference", "3"),
    "a GradScaler, at gates": ("scaler_scripts:at_gates",),
    "the guard refuses": ("oversight_scripts:descended", "curved", "alone", "40"),
    "the sentinel retreats": ("oversight_scripts:descended", "flat", "safer", "60"),
    "steps alone, and their guard": ("drifting_scripts:steep", "average", "20", "logged", "sgd"),
    "checkpoints of late gradients": ("checkpoint_scripts:resumed", "gate", "watched", "7"),
    "checkpoints of a policy": ("checkpoint_scripts:with_policy", "top_k"),
    "two policies in a plan": ("mixed_scripts:two_policies",),
}
"""Scripts of other tests, each with its arguments: what they return is to be the same with all tensors on a device."""
ON_FOUR = {
    "shares of batches": ("shares_scripts:stepped",),
    "two racks": ("device_ways:racks",),
}
"""The same, on four ranks."""


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    """The device, built before ranks begin to wait for each other."""
    hostile.build()


@pytest.fixture(scope="module")
def returned(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, list[Any]]:
    """By script and place: what ranks returned."""
    found = {}
    for world, scripts in ((2, SCRIPTS), (4, ON_FOUR)):
        calls = {
            (name, where): ("tests.torch.device_ways:on", where, f"tests.torch.{script}", *arguments)
            for name, (script, *arguments) in scripts.items()
            for where in ("cpu", "device")
        }
        found |= ranks.by_name(calls, world, tmp_path_factory.mktemp("ways"), settings=SETTINGS)
    return found


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    found = ranks.run(
        "tests.torch.device_ways:as_ddp", 2, tmp_path_factory.mktemp("ddp"), *ABLE, settings=SETTINGS
    )
    assert found.outcome.code == 0, found.output
    return {each["way"]: Row(**each) for each in found.returned[0]}


@pytest.mark.parametrize("way", ABLE)
def test_it_is_the_training_of_ddp(way: str, rows: dict[str, Row]) -> None:
    """Broken: a user who replaces DDP would train another model on a device."""
    assert rows[way].met, rows[way]


@pytest.mark.parametrize("name", SCRIPTS | ON_FOUR)
def test_it_is_the_training_of_the_cpu(name: str, returned: dict[Any, list[Any]]) -> None:
    """Broken: what guards, scales, clips or saves would read gradients before they are there, or other ones."""
    assert differ(returned[name, "cpu"], returned[name, "device"]) == []


def test_a_job_that_drives_itself(tmp_path: Path) -> None:
    """Broken: plans that begin while training runs would lose gradients that are on their way from or to a device."""
    settings = Settings(timeout_s=60, start_timeout_s=60, cache_bytes=0, search="10m")
    ended = ranks.run("tests.torch.device_ways:drives_itself", 2, tmp_path, "3", settings=settings)
    assert None not in ended.returned, ended.output
    for far, epochs in ended.returned:
        assert far < TOLERANCE
        assert epochs >= 3, ended.output


def differ(one: Any, other: Any, at: str = "") -> list[str]:
    """Places in which two values are not the same."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [found for key in one for found in differ(one[key], other[key], f"{at}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            found
            for number, pair in enumerate(zip(one, other, strict=True))
            for found in differ(*pair, f"{at}.{number}")
        ]
    if isinstance(one, float) and isinstance(other, float):
        return [] if abs(one - other) <= TOLERANCE * max(1.0, abs(one)) else [f"{at}: {one} {other}"]
    return [] if one == other else [f"{at}: {one} {other}"]
