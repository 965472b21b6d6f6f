"""Names of hosts from files of others, on their way into host files and shells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.names import check_hosts
from hocket.artefacts.network import network
from hocket.cli.order import command
from hocket.errors import ArtefactError
from hocket.tools.ordering.handover import FORMATS
from hocket.tools.ordering.handover.layout import Layout

HOSTILE = (
    "a;reboot",
    "$(reboot)",
    "`reboot`",
    "-oProxyCommand=reboot",
    "me@-oProxyCommand=reboot",
    "a b",
    "a\nb",
    "a'b",
    "a\x1b[2J",
    "a|b",
    "../a",
    "а",  # noqa: RUF001  Cyrillic
    "",
    "a" * 400,
)


@pytest.mark.parametrize(
    "name", ["node-1.example.org", "i-0abc_1", "10.0.0.7", "::1", "fe80::1%eth0", "me@b"]
)
def test_names_and_addresses_are_taken(name: str) -> None:
    """Broken: a cluster of ordinary names could not be ordered."""
    check_hosts([name], "here")
    for text in FORMATS.values():
        assert name in text(Layout(((name, 2),)))


def by_matrix(directory: Path, name: str) -> list[str]:
    path = directory / "matrix.csv"
    path.write_text(f'"{name}",b\n0,1\n1,0\n')
    return ["--matrix", str(path)]


def by_cluster(directory: Path, name: str) -> list[str]:
    path = directory / "cluster.toml"
    hosts = tuple(Host(name=each, bandwidth_bit_per_s=1e9) for each in (name, "b"))
    files.write(path, Cluster(hosts=hosts))
    return ["--cluster", str(path)]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("given", [by_matrix, by_cluster])
def test_hostile_names_are_refused(
    given: Callable[[Path, str], list[str]], name: str, tmp_path: Path
) -> None:
    """Broken: who writes a matrix would run commands where its order is pasted into a shell or read by a launcher."""
    result = CliRunner().invoke(command, [*given(tmp_path, name), "--format", "torchrun"])
    assert isinstance(result.exception, ArtefactError), result.output
    assert repr(name[:60]) in str(result.exception)
    assert "is not the name of a host" in str(result.exception)
    assert result.output == ""


@pytest.mark.parametrize("name", HOSTILE)
def test_no_layout_or_network_has_hostile_names(name: str) -> None:
    """Broken: an order that was made without a file would carry them to a launcher."""
    with pytest.raises(ArtefactError, match="is not the name of a host"):
        Layout((("a", 1), (name, 1)))
    with pytest.raises(ArtefactError, match="is not the name of a host"):
        network(Cluster(hosts=(Host(name=name, bandwidth_bit_per_s=1e9),)))
