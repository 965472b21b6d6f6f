"""Check of the testbed: two hosts are emulated briefly, once with the kernel's links, once with the switch's devices."""

from __future__ import annotations

import os
from collections.abc import Iterable

from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import TestbedError
from hocket.tools.doctor.finding import Finding
from hocket.tools.testbed import Testbed, switch_program
from hocket.tools.testbed.switched import CLONE_DEVICE

SECTION = "testbed"
RATE_BIT_PER_S = 1e9


def findings() -> Iterable[Finding]:
    """Yield findings on network namespaces with tc, the switch's program, and TAP devices."""
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=RATE_BIT_PER_S) for name in ("doctor0", "doctor1"))
    try:
        with Testbed(Cluster(hosts=hosts)):
            pass
    except TestbedError as error:
        why, _, hint = str(error).partition("\nhint: ")
        yield Finding(section=SECTION, name="emulated hosts", state="missing", detail=why, hint=hint)
    else:
        how = "as root" if os.geteuid() == 0 else "in user namespaces"
        yield Finding(
            section=SECTION,
            name="emulated hosts",
            state="works",
            detail=f"network namespaces {how}, rates by tc",
        )
    yield _switch()
    try:
        os.close(os.open(CLONE_DEVICE, os.O_RDWR))
    except OSError as error:
        yield Finding(
            section=SECTION,
            name="TAP devices",
            state="missing",
            detail=f"{CLONE_DEVICE}: {error.strerror}: clusters with latency, jitter or loss cannot be emulated",
            hint="modprobe tun; in a container: --device /dev/net/tun",
        )
    else:
        yield Finding(
            section=SECTION,
            name="TAP devices",
            state="works",
            detail=f"{CLONE_DEVICE}, for clusters with latency, jitter or loss",
        )


def _switch() -> Finding:
    try:
        found = switch_program.find()
    except TestbedError as error:
        why, _, hint = str(error).partition("\nhint: ")
        return Finding(section=SECTION, name="switch", state="missing", detail=why, hint=hint)
    return Finding(section=SECTION, name="switch", state="works", detail=str(found))
