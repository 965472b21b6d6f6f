"""Secrets that are none, and bytes that would go in the clear: refused when TLS is asked for, said when it is not."""

import logging
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hocket.errors import UsageError
from hocket.job import secrecy
from hocket.job.environment import identify
from hocket.job.rendezvous import join
from hocket.job.secrecy import check_secret
from hocket.libraries.catalogue import open_library
from hocket.settings import Settings
from tests.support import warm
from tests.support.commands import completed

LAUNCHERS = {
    "torchrun": {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
    "Open MPI": {
        "OMPI_COMM_WORLD_RANK": "0",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "PMIX_NAMESPACE": "prterun-node0-4711@1",
    },
    "MPICH": {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2", "PMI_JOBID": "7"},
    "SLURM": {
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_JOB_NODELIST": "localhost",
    },
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_tls_without_a_secret_is_refused(launcher):
    """Anybody who knows the job's public names could derive the secret, pass through TLS and train along."""
    environment = {**LAUNCHERS[launcher], "HOCKET_TLS": "1", "HOCKET_START_TIMEOUT_S": "1"}
    publish = {"torchrun": lambda address, _: address}.get(launcher)
    with pytest.raises(
        UsageError, match=rf"HOCKET_TLS=1 needs a secret, and {launcher} gives .*\n.*HOCKET_SECRET"
    ):
        join(environment=environment, publish=publish)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_secret_that_is_none_is_said_by_rank_0(launcher, caplog):
    """Users would not know that whoever reaches the ports of a job can take part in it."""
    # A process warns once, and this one may have been such a rank in another test.
    secrecy._warn.cache_clear()
    environment = LAUNCHERS[launcher]
    rank = next(name for name in environment if name.endswith(("RANK", "PROCID")))
    for each in ("0", "1"):
        me = identify({**environment, rank: each})
        assert not me.private
        with caplog.at_level(logging.WARNING, "hocket.job"):
            check_secret(me, Settings())
    assert [record.getMessage().count("no secret") for record in caplog.records] == [1]
    assert "HOCKET_SECRET" in caplog.text


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_given_secret_is_one(launcher, caplog):
    """TLS would be refused to those who did what they were told."""
    me = identify({**LAUNCHERS[launcher], "HOCKET_SECRET": "ab" * 32})
    assert me.private
    check_secret(me, Settings(tls=True))
    check_secret(me, Settings())
    assert not caplog.records


MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
RANK = """
from hocket.job.rendezvous import join

with join() as job:
    job.engine().close()
    print(f"rank {job.rank} met the others over TLS: {job.settings.tls}", flush=True)
"""


@pytest.mark.skipif(MPIRUN is None, reason="no mpirun here")
@pytest.mark.parametrize("passed", [True, False], ids=["with -x", "without"])
def test_mpirun_passes_the_secret_on(tmp_path, passed):
    """What docs/secrets.md says of Open MPI would not work."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    given = ["-x", "HOCKET_SECRET"] if passed else []
    argv = [
        "--allow-run-as-root",
        "--oversubscribe",
        "-n",
        "2",
        *given,
        "-x",
        "HOCKET_TLS",
        sys.executable,
        str(script),
    ]
    variables = {**os.environ, "HOCKET_TLS": "1"}
    if passed:
        variables["HOCKET_SECRET"] = "ef" * 32
    ended = completed([str(MPIRUN), *argv], env=variables)
    if passed:
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.count("met the others over TLS: True") == 2
    else:
        assert ended.returncode != 0
        assert "HOCKET_TLS=1 needs a secret, and Open MPI gives rank" in ended.stderr


def test_a_rank_alone_needs_none():
    """A script could not be tried by itself with the variables that it will have in its job."""
    with join(environment={"HOCKET_TLS": "1"}) as job:
        assert len(job.secret) == 32


def clear_job(**settings):
    return SimpleNamespace(rank=1, world=2, host="node1", settings=Settings(**settings))


@pytest.mark.parametrize("name", ["gloo", "nccl", "mpi"])
def test_a_library_that_sends_in_the_clear_is_refused(name):
    """`HOCKET_TLS=1` with `library="gloo"` would train in the clear."""
    with pytest.raises(
        UsageError, match=rf"HOCKET_TLS=1, but rank 1 on node1: library `{name}` sends in the clear\n.*native"
    ):
        open_library(name, clear_job(tls=True))


HOOK = """
import torch.distributed as dist
import hocket.torch
from hocket.policies import PartialF16

dist.init_process_group(BACKEND)
hocket.torch.ddp_hook(PartialF16())
print("hooked", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("backend", ["gloo", "hocket"])
def test_ddp_over_gloo_is_refused(backend, tmp_path):
    """DDP itself would send parameters and buffers in the clear, beside gradients that are encrypted."""
    script = tmp_path / "hook.py"
    script.write_text(HOOK.replace("BACKEND", repr(backend)))
    outcome = completed(
        warm.torchrun(["--standalone", "--nproc-per-node=2"], script),
        HOCKET_TLS="1",
        HOCKET_SECRET="cd" * 32,
        OMP_NUM_THREADS="1",
    )
    if backend == "gloo":
        assert outcome.returncode != 0
        assert "HOCKET_TLS=1, but DDP over gloo" in outcome.stderr
        assert 'init_process_group("hocket")' in outcome.stderr
    else:
        assert outcome.returncode == 0, outcome.stderr
        assert outcome.stdout.count("hooked") == 2
