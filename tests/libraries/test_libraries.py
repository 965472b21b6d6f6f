"""Collectives by other libraries: Gloo always, MPI and NCCL where there is one, in real processes."""

import importlib.util
import io
import os
import secrets
import shutil
import socket
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from hocket.errors import UsageError
from hocket.job.rendezvous import join
from hocket.libraries.catalogue import open_library
from hocket.libraries.torch_distributed import serve_store
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.support import warm
from tests.support.commands import completed

pytestmark = pytest.mark.tools

RANK = Path(__file__).parent / "mpi_rank.py"


def run_by_launcher(library, what, timeout_s, world=3):
    out = io.BytesIO()
    spec = ProcessSpec(argv=warm.command(RANK, library, what, str(timeout_s)))
    outcome = launch([spec] * world, settings=Settings(timeout_s=30, start_timeout_s=30), out=out, err=out)
    assert outcome.code == 0, out.getvalue().decode()
    assert out.getvalue().count(b"is right") == world
    return out.getvalue().decode()


def own_segments(folder):
    """Open MPI leaves the shared memory of a rank that was killed where it was made."""
    return {"OMPI_MCA_btl_sm_backing_directory": str(folder)}


def run_by_mpirun(what, timeout_s, folder):
    mpirun = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if mpirun is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no mpirun with mpi4py here: the extra `mpi`, and an MPI")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        store = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {
        **os.environ,
        "HOCKET_STORE": store,
        "HOCKET_SECRET": secrets.token_hex(16),
        **own_segments(folder),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    command = [mpirun, "-n", "3", sys.executable, str(RANK), "mpi", what, str(timeout_s)]
    return completed(command, env=environment)


def test_gloo():
    """Another library would get other elements, types or groups."""
    run_by_launcher("gloo", "collectives", 20)


def test_gloo_moves_each_part_once():
    """A reduce-scatter by all-reduce, or a scatter by broadcast, costs a multiple; `pytest -s` prints bytes and times."""
    sys.stdout.write(run_by_launcher("gloo", "traffic", 20, world=4))


def test_mpi(tmp_path):
    ended = run_by_mpirun("collectives", 20, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("is right") == 3


def test_nccl():
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    run_by_launcher("nccl", "collectives", 20, world=min(3, torch.cuda.device_count()))


def test_gloo_names_who_stays_away():
    """A job would hang, or end without a word about whom to look at."""
    run_by_launcher("gloo", "stays_away", 1.6)


def test_mpi_names_who_stays_away_and_ends(tmp_path):
    """MPI makes communicators and ends processes without a deadline: the job would hang."""
    ended = run_by_mpirun("stays_away", 1.6, tmp_path)
    assert ended.returncode != 0
    assert ended.stdout.count("is right") == 2, ended.stdout + ended.stderr


def test_unknown_library():
    """A misspelt name would fail in the first step."""
    with pytest.raises(UsageError, match="there is no library `glue`\nhint: gloo, nccl, mpi"):
        open_library("glue", None)


def test_nccl_without_a_gpu():
    """It would fail deep inside."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with (
        join(environment={}) as job,
        pytest.raises(UsageError, match=r"rank 0 on .*: library `nccl` needs a GPU"),
    ):
        open_library("nccl", job)


def test_mpi_without_mpi4py(monkeypatch):
    """An ImportError says nothing about what to install."""
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with (
        join(environment={}) as job,
        pytest.raises(UsageError, match=r"library `mpi` cannot be loaded: .*\nhint: pip install"),
    ):
        open_library("mpi", job)


def test_mpi_without_mpirun(tmp_path):
    """Each rank would be alone in its own world of MPI, and sum up nothing."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no mpi4py here: the extra `mpi`, and an MPI")
    out = io.BytesIO()
    argv = [sys.executable, str(RANK), "mpi", "collectives", "20"]
    spec = ProcessSpec(argv=argv, environment=own_segments(tmp_path))
    outcome = launch([spec] * 2, settings=Settings(timeout_s=30, start_timeout_s=30), out=out, err=out)
    assert outcome.code != 0
    output = out.getvalue().decode()
    if "cannot be loaded" in output:
        pytest.skip("mpi4py finds no MPI here")
    assert "library `mpi`: MPI calls this process rank 0 of 1, the job rank" in output
    assert "hint: start the ranks with mpirun" in output


def test_a_store_of_torch_s_listens_at_one_address():
    """Torch's stores ask nobody who they are: any interface would let strangers write into them."""
    store = serve_store("127.0.0.1", timedelta(seconds=10))
    socket.create_connection(("127.0.0.1", store.port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", store.port), timeout=5)
