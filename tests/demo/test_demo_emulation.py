"""Where the demo trains when namespaces are not allowed: on loopback, as a emulation that says what it cannot do."""

from collections.abc import Iterator

import pytest

from hocket.errors import TestbedError
from hocket.job import emulated_links
from hocket.tools.demo import emulation
from hocket.tools.testbed import example_cluster

pytestmark = pytest.mark.hosts


class _Refused:
    """A testbed where the kernel says no."""

    def __init__(self, _cluster: object, **_options: object) -> None:
        pass

    def __enter__(self) -> None:
        raise TestbedError("network namespaces are not allowed here: Operation not permitted")

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> Iterator[emulation.Emulation]:
    monkeypatch.setattr(emulation, "Testbed", _Refused)
    with emulation.open_emulation(example_cluster("two-racks")) as opened:
        yield opened


def test_the_fallback_says_why_and_what_it_cannot_do(loopback: emulation.Emulation) -> None:
    """Broken: numbers of another network would pass as those of the cluster."""
    said = "\n".join(loopback.remarks)
    assert "Operation not permitted" in said
    assert "DDP is left out" in said
    assert not loopback.carries_any_program


def test_only_ways_between_racks_cross_the_uplinks(loopback: emulation.Emulation) -> None:
    """Broken: the emulated network would be slow in the wrong places."""
    cluster = loopback.cluster
    names = [host.name for host in cluster.hosts]
    for a in cluster.hosts:
        _, rates, routes = emulated_links.read(
            emulation.Path(loopback.environment["HOCKET_EMULATED_LINKS"]), a.name, names
        )
        for b, route in zip(cluster.hosts, routes, strict=True):
            slow = [link for link in route if rates[link] == 100e6]
            assert len(slow) == (0 if a.rack == b.rack else 2)
            assert len(route) == (0 if a.name == b.name else 2 + len(slow))


def test_ports_are_free_and_differ(loopback: emulation.Emulation) -> None:
    """Broken: two stores of one training would meet at one port."""
    assert loopback.address("node0") == "127.0.0.1"
    assert len({loopback.port() for _ in range(8)}) > 1
