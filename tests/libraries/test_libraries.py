"""Collectives by other libraries: Gloo always, MPI where there is one, in real processes."""

import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.errors import UsageError
from hocket.launch.processes import ProcessSpec
from hocket.launch.run import launch
from hocket.libraries.call import open_library
from hocket.settings import Settings

RANK = Path(__file__).parent / "mpi_rank.py"


def test_gloo(tmp_path):
    """Another library would get other elements, types or groups."""
    import io

    out = io.BytesIO()
    spec = ProcessSpec(argv=[sys.executable, str(RANK), "gloo"])
    outcome = launch([spec] * 3, settings=Settings(timeout_s=30, start_timeout_s=30), out=out, err=out)
    assert outcome.code == 0, out.getvalue().decode()
    assert out.getvalue().count(b"is right") == 3


def test_mpi():
    """The same by MPI."""
    mpirun = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if mpirun is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no mpirun with mpi4py here: pip install 'hocket[mpi]', and an MPI")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        store = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {
        **os.environ,
        "HOCKET_STORE": store,
        "HOCKET_SECRET": secrets.token_hex(16),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    command = [mpirun, "-n", "3", sys.executable, str(RANK), "mpi"]
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=90)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("is right") == 3


def test_unknown_library():
    """A misspelt name would fail in the first step."""
    with pytest.raises(UsageError, match="there is no library `glue`\nhint: gloo, nccl, mpi"):
        open_library("glue", None)


def test_nccl_without_a_gpu():
    """It would fail deep inside."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UsageError, match="library `nccl` needs a GPU"):
        open_library("nccl", None)
