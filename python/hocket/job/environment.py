"""Identity of this process in its job, from its launcher's variables: Hocket, torchrun, Open MPI, MPICH, SLURM.

A pure function of a mapping finds rank and meeting place separately, because launchers nest (srun also starts Open MPI
ranks): the first source that numbers the rank wins, and then the first source that gives the meeting place. Without
HOCKET_SECRET, which Hocket's own launcher sets, a secret is derived from the job's id. That keeps processes of other
jobs out, but not an attacker on the same network, who could derive it too (`secrecy`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from hocket.errors import RendezvousError, UsageError
from hocket.job import slurm
from hocket.job.store import address as addresses
from hocket.job.store.messages import WORLD_MAX
from hocket.settings import Settings

PORT_FIRST, PORT_COUNT = 20_000, 12_000
"""Range of derived ports: below the ports that Linux gives to outgoing connections (32768 and up)."""
SECRET_BYTES_MIN = 16
MAKE_ONE = "`openssl rand -hex 32` makes one"
NO_LAUNCHER = "no launcher"
"""Launcher's name for a process that no variable numbers."""


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Place of the store: at `address`, or at the address that rank 0 publishes through the launcher's own store.

    `served`: the launcher serves it; otherwise rank 0 does.
    """

    address: str | None
    served: bool = False


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Identity of this process in its job. `job` is equal on all ranks; `local_*` only if the launcher gives them."""

    launcher: str
    rank: int
    world: int
    local_rank: int | None
    local_world: int | None
    job: str
    secret: bytes
    private: bool
    """True if only this job's ranks know the secret."""
    meeting: Meeting
    master: str | None
    """Address of the launcher's own store, if it has one."""


@dataclass(frozen=True, kw_only=True)
class _Source:
    """Variables of one launcher. `job`: names of those that together identify the job, equal on all ranks."""

    launcher: str
    rank: str
    world: tuple[str, ...]
    local_rank: str
    local_world: str | None
    job: tuple[str, ...]
    world_means_rank: bool = True
    """True if a world size without a rank is an error; SLURM also gives it to the allocation's shell."""


SOURCES = (
    _Source(
        launcher="hocket run",
        rank="HOCKET_RANK",
        world=("HOCKET_WORLD",),
        local_rank="HOCKET_LOCAL_RANK",
        local_world="HOCKET_LOCAL_WORLD",
        job=("HOCKET_STORE",),
    ),
    _Source(
        launcher="torchrun",
        rank="RANK",
        world=("WORLD_SIZE",),
        local_rank="LOCAL_RANK",
        local_world="LOCAL_WORLD_SIZE",
        job=("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"),
    ),
    _Source(
        launcher="Open MPI",
        rank="OMPI_COMM_WORLD_RANK",
        world=("OMPI_COMM_WORLD_SIZE",),
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
        local_world="OMPI_COMM_WORLD_LOCAL_SIZE",
        job=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    _Source(
        launcher="MPICH",
        rank="PMI_RANK",
        world=("PMI_SIZE",),
        local_rank="MPI_LOCALRANKID",
        local_world="MPI_LOCALNRANKS",
        job=("PMIX_NAMESPACE", "PMI_JOBID", "PMI_PORT"),
    ),
    _Source(
        launcher="SLURM",
        rank="SLURM_PROCID",
        world=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
        local_rank="SLURM_LOCALID",
        local_world=None,
        job=(),
        world_means_rank=False,
    ),
)


def identify(environment: Mapping[str, str], *, parent: int | None = None) -> Identity:
    """Identify this process.

    Args:
        environment: variables, such as `os.environ`.
        parent: process id of the launcher, which identifies the job if no variable does (MPICH on one host).

    Raises:
        UsageError: a variable cannot be parsed, or contradicts another one.
        RendezvousError: variables that identify this rank or the meeting place are missing.

    >>> identify({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}).world
    2
    """
    environment = {name: value for name, value in environment.items() if value != ""}
    source = _source(environment)
    _refuse_nested(environment, source)
    rank, world, local_rank, local_world = _numbers(environment, source)
    job = _job(environment, source, parent)
    secret, private = _secret(environment, job)
    return Identity(
        launcher=source.launcher if source else NO_LAUNCHER,
        rank=rank,
        world=world,
        local_rank=local_rank,
        local_world=local_world,
        job=job,
        secret=secret,
        private=private,
        meeting=_meeting(environment, world=world, local_world=local_world, job=job),
        master=environment.get("MASTER_ADDR"),
    )


def _source(environment: Mapping[str, str]) -> _Source | None:
    for source in SOURCES:
        world = next((name for name in source.world if name in environment), None)
        if source.rank in environment and world is None:
            raise RendezvousError(
                f"{source.rank} is set ({environment[source.rank]}), but {source.world[0]} is not\n"
                "hint: set both, or neither for a job of one process"
            )
        if source.rank in environment:
            return source
        if world is not None and source.world_means_rank:
            raise RendezvousError(
                f"{world} is set ({environment[world]}), but {source.rank} is not\n"
                "hint: set both, or neither for a job of one process"
            )
    return None


def _refuse_nested(environment: Mapping[str, str], source: _Source | None) -> None:
    """Refuse a rank of another launcher below `hocket run`, which also sets torchrun's variables: they then differ."""
    if source is not SOURCES[0] or not {"RANK", "WORLD_SIZE"} <= environment.keys():
        return
    rank, world, _, _ = _numbers(environment, source)
    workers = world - Settings.from_environment(environment).besides
    variables = (environment["RANK"], environment["WORLD_SIZE"])
    if variables != (str(rank), str(workers)):
        raise UsageError(
            f"`hocket run` started rank {rank} of {workers}, but RANK is {variables[0]} and WORLD_SIZE {variables[1]}\n"
            "hint: start the job with one launcher: `hocket run` sets the variables of torchrun too"
        )


def _numbers(
    environment: Mapping[str, str], source: _Source | None
) -> tuple[int, int, int | None, int | None]:
    """Return rank, world, local rank and local world, each checked against its range."""
    if source is None:
        return 0, 1, 0, 1
    world_name = next(name for name in source.world if name in environment)
    rank, world = _count(environment, source.rank), _count(environment, world_name)
    if not 1 <= world <= WORLD_MAX:
        raise UsageError(
            f"{world_name}: {world} ranks; between 1 and messages.WORLD_MAX = {WORLD_MAX} are possible"
        )
    if rank >= world:
        raise UsageError(f"{source.rank} is {rank}, but {world_name} is {world}: ranks count from 0")
    local_rank = _count(environment, source.local_rank) if source.local_rank in environment else None
    local_world = None
    if source.local_world is not None and source.local_world in environment:
        local_world = _count(environment, source.local_world)
    if source.launcher == "SLURM":
        local_world = slurm.tasks_here(environment)
    elif (
        local_rank is None and "SLURM_LOCALID" in environment and environment.get("SLURM_PROCID") == str(rank)
    ):
        local_rank, local_world = _count(environment, "SLURM_LOCALID"), slurm.tasks_here(environment)
    if local_world is not None and not 1 <= local_world <= world:
        raise UsageError(
            f"{source.local_world or 'SLURM_TASKS_PER_NODE'}: {local_world} of {world} ranks on this host"
        )
    if local_rank is not None and local_rank >= (local_world or world):
        raise UsageError(
            f"{source.local_rank} is {local_rank}, but this host has {local_world or world} ranks"
        )
    return rank, world, local_rank, local_world


def _count(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not text.isascii() or not text.isdigit() or len(text) > len(str(WORLD_MAX)):
        raise UsageError(f"{name}: {text!r} is not a count")
    return int(text)


def _job(environment: Mapping[str, str], source: _Source | None, parent: int | None) -> str:
    """Return a text that all ranks of the job share and other jobs, most likely, do not."""
    if source is None:
        return "alone"
    step = [environment[name] for name in ("SLURM_JOB_ID", "SLURM_STEP_ID") if name in environment]
    named = [environment[name] for name in source.job if name in environment]
    meeting = [environment[name] for name in ("MASTER_ADDR", "MASTER_PORT") if name in environment]
    parts = named or step or meeting or [f"parent {parent}"]
    return ":".join([source.launcher, *parts])


def _secret(environment: Mapping[str, str], job: str) -> tuple[bytes, bool]:
    """Return the secret, and True if only the job's ranks know it."""
    text = environment.get("HOCKET_SECRET")
    if text is None:
        return hashlib.sha256(b"hocket, no secret given: " + job.encode()).digest(), False
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        raise UsageError(
            f"HOCKET_SECRET is not hexadecimal\nhint: {MAKE_ONE}"
        ) from None  # its value must not be printed
    if len(secret) < SECRET_BYTES_MIN:
        raise UsageError(
            f"HOCKET_SECRET has {len(secret)} bytes: it needs {SECRET_BYTES_MIN}\nhint: {MAKE_ONE}"
        )
    return secret, True


def _meeting(environment: Mapping[str, str], *, world: int, local_world: int | None, job: str) -> Meeting:
    settings = Settings.from_environment(environment)
    if settings.store is not None:
        addresses.split(settings.store, variable="HOCKET_STORE")
        return Meeting(address=settings.store, served=settings.store_served)
    if world == 1:
        return Meeting(address=addresses.join(addresses.LOOPBACK, 0))
    master = _master(environment)
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return Meeting(address=None)
    if master is not None:
        return Meeting(address=master)
    port = PORT_FIRST + int.from_bytes(hashlib.sha256(job.encode()).digest()[:4], "big") % PORT_COUNT
    nodes = slurm.nodes(environment)
    if nodes:
        return Meeting(address=addresses.join(nodes[0], port))
    if local_world == world:
        return Meeting(address=addresses.join(addresses.LOOPBACK, port))
    raise RendezvousError(
        f"nothing says where the {world} ranks of this job meet\n"
        "hint: set HOCKET_STORE to a free ADDRESS:PORT of rank 0's machine, on all ranks"
    )


def _master(environment: Mapping[str, str]) -> str | None:
    """Return the address with the port after MASTER_PORT, which torch's own process group uses."""
    given = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name in environment]
    if not given:
        return None
    if len(given) == 1:
        other = "MASTER_PORT" if given == ["MASTER_ADDR"] else "MASTER_ADDR"
        raise RendezvousError(
            f"{given[0]} is set ({environment[given[0]]}), but {other} is not\nhint: set both"
        )
    text = environment["MASTER_PORT"]
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < addresses.PORT_MAX:
        raise UsageError(f"MASTER_PORT: {text!r} is not a port below {addresses.PORT_MAX}")
    return addresses.join(environment["MASTER_ADDR"], int(text) + 1)
