"""Processes that are one of several without a rank that Hocket knows: each would train a model of its own, and says so."""

import pytest

from hocket.job.alone import warning
from hocket.job.environment import identify
from hocket.job.rendezvous import join
from tests.launch.test_launch_environment import MPICH, OPEN_MPI, SLURM, TORCH

ONE_OF_SEVERAL = [
    ({"JOB_COMPLETION_INDEX": "0"}, "JOB_COMPLETION_INDEX is set (0)", "RANK=$JOB_COMPLETION_INDEX"),
    ({"SLURM_NTASKS": "4"}, "SLURM_NTASKS is 4", "`srun python"),
    ({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}, "SLURM_JOB_NUM_NODES is 2", "`srun python"),
    ({"SLURM_NTASKS": "1", "SLURM_NNODES": "2"}, "SLURM_NNODES is 2", "`srun python"),
    ({"LSB_DJOB_HOSTFILE": "/no/such/file"}, "LSB_DJOB_HOSTFILE is set", "hocket run --hosts"),
    ({"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2"}, "FLUX_JOB_SIZE is 2", "RANK=$FLUX_TASK_RANK"),
    ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, "MV2_COMM_WORLD_SIZE is 2", "RANK="),
    ({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"}, "HOROVOD_SIZE is 2", "RANK=$HOROVOD_RANK"),
    ({"PMIX_RANK": "0"}, "PMIX_RANK is set", "mpirun"),
    ({"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}}'}, "TF_CONFIG names 2 processes", "RANK"),
    ({"SM_HOSTS": '["algo-1", "algo-2"]'}, "SM_HOSTS names 2 processes", "torch_distributed"),
    ({"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}, "MASTER_ADDR is set (node0)", "RANK and WORLD_SIZE"),
    ({"NODE_RANK": "1"}, "NODE_RANK is set (1)", "torchrun"),
]
ALONE = [
    {},
    {"SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1"},
    {"SLURM_NTASKS": ""},
    {"TF_CONFIG": "{"},
    {"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'},
    {"SM_HOSTS": '["algo-1"]'},
    {"HOROVOD_SIZE": "1"},
]


@pytest.mark.parametrize(("environment", "evidence", "instead"), ONE_OF_SEVERAL)
def test_one_of_several_is_told_so(environment, evidence, instead):
    """Each of n processes would train a model of its own, and the loss of each look fine."""
    assert identify(environment).world == 1
    said = warning(environment)
    assert evidence in said
    assert instead in said.partition("hint: ")[2]


@pytest.mark.parametrize("environment", ALONE)
def test_who_is_alone_hears_nothing(environment):
    """Every run at a desk would begin with a warning, and nobody would read the true one."""
    assert warning(environment) is None


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("PBS_NODEFILE", "a\na\nb\n", "PBS_NODEFILE lists 3 places on 2 hosts"),
        (
            "PE_HOSTFILE",
            "a 2 all.q UNDEFINED\nb 1 all.q UNDEFINED\n",
            "PE_HOSTFILE lists 3 places on 2 hosts",
        ),
        ("PBS_NODEFILE", "a\n", None),
        ("PE_HOSTFILE", "a 1 all.q UNDEFINED\n", None),
    ],
)
def test_files_of_hosts_are_counted(tmp_path, name, text, said):
    """A job of one process would be warned, or one of several not."""
    file = tmp_path / "hosts"
    file.write_text(text)
    found = warning({name: str(file)})
    assert (found is None) if said is None else (said in found)


def test_a_job_says_it_once_it_joins(caplog):
    """Only who looks for it would hear of it."""
    with join(environment={"JOB_COMPLETION_INDEX": "1"}) as job:
        assert job.world == 1
    assert "this process trains alone, but JOB_COMPLETION_INDEX is set (1)" in caplog.text
    caplog.clear()
    with join(environment={"RANK": "0", "WORLD_SIZE": "1", "JOB_COMPLETION_INDEX": "1"}):
        pass
    assert "alone" not in caplog.text


@pytest.mark.parametrize("environment", [TORCH, OPEN_MPI, MPICH, SLURM])
def test_ranks_of_known_launchers_are_not_alone(environment):
    """Launchers that Hocket knows would be called unknown."""
    assert identify(environment).launcher != "no launcher"
