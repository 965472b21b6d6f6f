"""Hosts of several address families in one job: one that has IPv4 alone, one that has IPv6 alone, and one that has both."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import TestbedError
from hocket.tools.testbed import Testbed
from tests.testbed.test_relays import SUMS

pytestmark = pytest.mark.hosts

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    try:
        with Testbed(Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abc"))) as bed:
            for host in "ac":
                _run(bed, host, f"ip -6 address add {_v6(host)}/64 dev eth0 nodad")
            _run(bed, "c", f"ip address del {bed.address('c')}/16 dev eth0")
            yield bed
    except TestbedError as error:
        pytest.skip(f"no namespaces here: {error}")


def _v6(host: str) -> str:
    return f"fd00:77::{ord(host):x}"


def _run(bed: Testbed, host: str, command: str) -> None:
    made = bed.popen(host, command.split(), stderr=subprocess.PIPE, text=True)
    _, errors = made.communicate(timeout=TIMEOUT_S)
    assert made.returncode == 0, errors


@pytest.mark.parametrize("tls", ["0", "1"], ids=["plain", "tls"])
def test_hosts_of_both_families_are_one_job(bed: Testbed, tls: str) -> None:
    """A home with IPv6 alone and a cloud with IPv4 alone could not train together, though a third host has both."""
    store = f"[{bed.address('a')},{_v6('a')}]:29400"
    secret = secrets.token_hex(32)
    made = []
    for rank, host in enumerate("abc"):
        own = {"HOCKET_RANK": str(rank), "HOCKET_WORLD": "3", "HOCKET_STORE": store, "HOCKET_TLS": tls}
        own |= {"HOCKET_SECRET": secret, "HOCKET_HOST": host}
        argv = ["env", *(f"{name}={value}" for name, value in own.items()), sys.executable, "-c", SUMS]
        made.append(bed.popen(host, argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=TIMEOUT_S) for process in made]
    assert [process.returncode for process in made] == [0, 0, 0], said
    # Nobody needs more than an address that one side of a pair reaches; the two with nothing in common have a third between.
    assert [json.loads(out)[0] for out, _ in said] == [[[1, 2, [0]]]] * 3
