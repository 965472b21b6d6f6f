"""Check of the testbed: two hosts are emulated briefly, once with the kernel's links, once with the switch's devices."""

from __future__ import annotations

import os
from collections.abc import Iterable

from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import TestbedError
from hocket.tools.doctor.finding import Finding, Section
from hocket.tools.testbed import Testbed, switch_program
from hocket.tools.testbed.switched import CLONE_DEVICE

_finding = Section("testbed")
RATE_BIT_PER_S = 1e9


def findings() -> Iterable[Finding]:
    """Yield findings on network namespaces with tc, the switch's program, and TAP devices."""
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=RATE_BIT_PER_S) for name in ("doctor0", "doctor1"))
    try:
        with Testbed(Cluster(hosts=hosts)):
            pass
    except TestbedError as error:
        why, _, hint = str(error).partition("\nhint: ")
        yield _finding("emulated hosts", False, why, hint)
    else:
        how = "as root" if os.geteuid() == 0 else "in user namespaces"
        yield _finding("emulated hosts", True, f"network namespaces {how}, rates by tc")
    yield _switch()
    try:
        os.close(os.open(CLONE_DEVICE, os.O_RDWR))
    except OSError as error:
        yield _finding(
            "TAP devices",
            False,
            f"{CLONE_DEVICE}: {error.strerror}: clusters with latency, jitter or loss cannot be emulated",
            "modprobe tun; in a container: --device /dev/net/tun",
        )
    else:
        yield _finding("TAP devices", True, f"{CLONE_DEVICE}, for clusters with latency, jitter or loss")


def _switch() -> Finding:
    try:
        found = switch_program.find()
    except TestbedError as error:
        why, _, hint = str(error).partition("\nhint: ")
        return _finding("switch", False, why, hint)
    return _finding("switch", True, str(found))
