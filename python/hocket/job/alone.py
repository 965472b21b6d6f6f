"""Signs of schedulers that start several processes without a rank that Hocket knows: each would train a model of its own.

A process that no launcher numbers trains alone, which is right on a workstation. If one of these variables shows that there are
more processes, a warning says so, and how to start ranks there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hocket import typed

Environment = Mapping[str, str]
Evidence = Callable[[Environment], str | None]
"""Function that returns text on why there are several processes, or None."""

NUMBERED = (
    "give each process its RANK and WORLD_SIZE ({rank}), and all the MASTER_ADDR and MASTER_PORT of rank 0"
)


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """Sign of one scheduler. `instead`: command to start there."""

    scheduler: str
    evidence: Evidence
    instead: str


def warning(environment: Environment) -> str | None:
    """Return a warning that a process without a number may be one of several, with what to start instead, or None.

    >>> warning({}) is None
    True
    >>> print(warning({"SLURM_NTASKS": "4"}))
    this process trains alone, but SLURM_NTASKS is 4: each process that SLURM starts trains a model of its own
    hint: `srun python SCRIPT`, which numbers its tasks
    """
    environment = {name: value for name, value in environment.items() if value}
    for mark in MARKS:
        evidence = mark.evidence(environment)
        if evidence is not None:
            return (
                f"this process trains alone, but {evidence}: each process that {mark.scheduler} starts trains a "
                f"model of its own\n"
                f"hint: {mark.instead}"
            )
    return None


def _more_than_one(*names: str) -> Evidence:
    """Return evidence that the first of these counts is set and above 1."""

    def evidence(environment: Environment) -> str | None:
        for name in names:
            text = environment.get(name, "")
            if text.isascii() and text.isdigit() and int(text[:9]) > 1:
                return f"{name} is {text}"
        return None

    return evidence


def _given(*names: str) -> Evidence:
    """Return evidence that any of these variables is set."""

    def evidence(environment: Environment) -> str | None:
        name = next((name for name in names if name in environment), None)
        return None if name is None else f"{name} is set ({environment[name]})"

    return evidence


def _lines(name: str, *, slots: bool = False) -> Evidence:
    """Return evidence from a file with a line for each process, or for each host, with its `slots` in the second column."""

    def evidence(environment: Environment) -> str | None:
        if name not in environment:
            return None
        try:
            rows = [line.split() for line in Path(environment[name]).read_text().splitlines() if line.strip()]
        except (OSError, ValueError):
            return f"{name} is set ({environment[name]})"
        many = sum(int(row[1]) if slots and len(row) > 1 and row[1].isdecimal() else 1 for row in rows)
        return f"{name} lists {many} places on {len({row[0] for row in rows})} hosts" if many > 1 else None

    return evidence


def _several(name: str, path: tuple[str, ...] = ()) -> Evidence:
    """Return evidence that the JSON in that variable has a list of several, or several lists, at `path`."""

    def evidence(environment: Environment) -> str | None:
        try:
            found = typed.of_json(environment[name])
            for key in path:
                found = found[key]
            count = sum(len(each) if isinstance(each, list) else 1 for each in _values(found))
        except (KeyError, TypeError, msgspec.DecodeError, RecursionError):
            return None
        return f"{name} names {count} processes" if count > 1 else None

    return evidence


def _values(found: object) -> list[object]:
    if isinstance(found, dict):
        return list(found.values())
    return found if isinstance(found, list) else []


def _numbered(scheduler: str, rank: str, world: str) -> _Mark:
    """Mark of a scheduler that numbers its processes by names that Hocket does not take for ranks."""
    return _Mark(
        scheduler=scheduler,
        evidence=_more_than_one(world),
        instead=NUMBERED.format(rank=f"RANK=${rank} WORLD_SIZE=${world}"),
    )


MARKS = (
    _Mark(
        scheduler="SLURM",
        evidence=_more_than_one(
            "SLURM_STEP_NUM_TASKS",
            "SLURM_NTASKS",
            "SLURM_NPROCS",
            "SLURM_NTASKS_PER_NODE",
            "SLURM_JOB_NUM_NODES",
            "SLURM_NNODES",
        ),
        instead="`srun python SCRIPT`, which numbers its tasks",
    ),
    _Mark(
        scheduler="Kubernetes",
        evidence=_given("JOB_COMPLETION_INDEX"),
        instead=NUMBERED.format(rank="RANK=$JOB_COMPLETION_INDEX, WORLD_SIZE: the job's completions"),
    ),
    _Mark(
        scheduler="PBS",
        evidence=_lines("PBS_NODEFILE"),
        instead="once, `hocket run --hosts $PBS_NODEFILE SCRIPT`",
    ),
    _Mark(
        scheduler="Grid Engine",
        evidence=_lines("PE_HOSTFILE", slots=True),
        instead="once, `awk '{print $1\" slots=\"$2}' $PE_HOSTFILE > hosts`, and `hocket run --hosts hosts SCRIPT`",
    ),
    _Mark(
        scheduler="LSF",
        evidence=_lines("LSB_DJOB_HOSTFILE"),
        instead="once, `hocket run --hosts $LSB_DJOB_HOSTFILE SCRIPT`",
    ),
    _Mark(
        scheduler="Cobalt",
        evidence=_lines("COBALT_NODEFILE"),
        instead="`hocket run --hosts $COBALT_NODEFILE SCRIPT`",
    ),
    _numbered("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    _numbered("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    _numbered("PALS", "PALS_RANKID", "PALS_SIZE"),
    _numbered("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    _numbered("horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE"),
    _numbered("AWS Batch", "AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES"),
    _Mark(
        scheduler="prterun",
        evidence=_given("PMIX_RANK"),
        instead="`mpirun` of Open MPI, or " + NUMBERED.format(rank="RANK=$PMIX_RANK"),
    ),
    _Mark(
        scheduler="SageMaker",
        evidence=_several("SM_HOSTS"),
        instead="the distribution `torch_distributed`, which starts torchrun",
    ),
    _Mark(
        scheduler="the cluster of TF_CONFIG",
        evidence=_several("TF_CONFIG", ("cluster",)),
        instead=NUMBERED.format(rank="RANK: the task's index, WORLD_SIZE: the number of workers"),
    ),
    _Mark(
        scheduler="the tracker of DMLC",
        evidence=_more_than_one("DMLC_NUM_WORKER"),
        instead=NUMBERED.format(rank="WORLD_SIZE=$DMLC_NUM_WORKER"),
    ),
    _Mark(
        scheduler="the launcher",
        evidence=_given("MASTER_ADDR", "NODE_RANK", "GROUP_RANK", "PET_NODE_RANK", "LOCAL_RANK"),
        instead="`hocket run`, torchrun or mpirun, or " + NUMBERED.format(rank="counted from 0"),
    ),
)
"""Marks in order of priority; the first that has evidence is used."""
