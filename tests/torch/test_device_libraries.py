"""The library of a device inside hosts and Hocket between them, on a device on which each order that is not kept goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hocket.settings import Settings
from tests.support import ranks
from tests.torch import hostile
from tests.torch.hostile.library import ERROR
from tests.torch.inside_scripts import PLANTED

pytestmark = pytest.mark.devices

TWO_HOSTS = "aabb"
CALLS = range(1, 5)
"""Calls of the library in the first steps: it reduces and gathers each bucket."""
# Nobody is told by a time-out: it would come after the test's deadline.
SETTINGS = Settings(timeout_s=900, start_timeout_s=60, sentinel=False)


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    """The device, built before ranks begin to wait for each other."""
    hostile.build()


def each_rank(function: str, hosts: str, tmp_path: Path, *arguments: str) -> ranks.Ended:
    return ranks.run(
        f"tests.torch.inside_scripts:{function}", len(hosts), tmp_path, hosts, *arguments, settings=SETTINGS
    )


@pytest.mark.parametrize("hosts", [TWO_HOSTS, "aaab", "abac"])
def test_models_end_as_on_the_cpu(hosts: str, tmp_path: Path) -> None:
    """Broken: gradients would be other means where a device's library adds them up within hosts, or hosts have unlike numbers of
    ranks."""
    ended = each_rank("differences", hosts, tmp_path)
    assert None not in ended.returned, ended.output
    for rank, found in enumerate(ended.returned):
        calls = found.pop("calls")
        assert max(found.values()) < 1e-12, (rank, found)
        assert (calls > 0) == (hosts.count(hosts[rank]) > 1), (rank, calls)


@pytest.mark.parametrize("order", PLANTED)
def test_every_order_is_needed(order: str, tmp_path: Path) -> None:
    """Broken: the test above would not notice that an order is not kept."""
    ended = each_rank("planted", TWO_HOSTS, tmp_path, order)
    # The job may notice it, too, as ranks whose replicas differ.
    assert any(each is None or each > 1e-6 for each in ended.returned), ended.returned


@pytest.mark.parametrize("how", ["fails", "killed"])
@pytest.mark.parametrize("at", CALLS)
def test_an_end_at_each_call_is_named(how: str, at: int, tmp_path: Path) -> None:
    """Broken: ranks would wait for one that fails within the library, or not learn which it was, or be left with a device that is
    busy."""
    ended = each_rank("ending", TWO_HOSTS, tmp_path, how, str(at))
    told: list[Any] = ended.returned[:3]
    assert None not in told, ended.output
    for text, works in told:
        assert "rank 3" in text, ended.output
        assert works
    if how == "fails":
        text, works = ended.returned[3]
        assert ERROR in text
        assert works
