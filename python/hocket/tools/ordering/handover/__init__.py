"""An order for each launcher: one format per file, each a pure function from a layout to text."""

from __future__ import annotations

from collections.abc import Callable

from hocket.tools.ordering.handover import (
    hosts,
    kubernetes,
    mpich,
    nccl,
    openmpi_hostfile,
    openmpi_rankfile,
    slurm,
    torchrun,
)
from hocket.tools.ordering.handover.layout import Layout

FORMATS: dict[str, Callable[[Layout], str]] = {
    "hosts": hosts.text,
    "openmpi-hostfile": openmpi_hostfile.text,
    "openmpi-rankfile": openmpi_rankfile.text,
    "mpich": mpich.text,
    "torchrun": torchrun.text,
    "slurm": slurm.text,
    "kubernetes": kubernetes.text,
    "nccl": nccl.text,
}
"""Formats by their names on the command line. JSON is the ordering itself."""
