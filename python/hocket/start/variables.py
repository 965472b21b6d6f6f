"""Variables that make a process a rank: Hocket's, and torchrun's, for programs that know only those.

The leash of rank 0 (`leash.py`) chooses address and port of torch's store, since they belong to its host.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Sequence

from hocket.settings import Settings
from hocket.start.processes import ProcessSpec

OF_A_RANK = (
    "HOCKET_RANK",
    "HOCKET_WORLD",
    "HOCKET_LOCAL_RANK",
    "HOCKET_LOCAL_WORLD",
    "HOCKET_MEMBER",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""Variables that identify a rank; not passed on to ranks that it launches itself."""


IDENTITY = {"HOCKET_STORE", "SLURM_PROCID", *OF_A_RANK}
"""Variables that launchers set for a job of their own."""


def of_torch(rank: int, world: int, master: str | None) -> dict[str, str]:
    """Return this process's variables as a rank of a job whose ranks `torch.distributed` gives, in which it is number `rank`.

    `master`: address of the machine of rank 0, or of torch's store there, as this one sees it; None: unknown.
    """
    environment = {name: value for name, value in os.environ.items() if name not in IDENTITY}
    environment |= {"RANK": str(rank), "WORLD_SIZE": str(world), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    if master is not None:
        environment |= {"MASTER_ADDR": master, "MASTER_PORT": "1"}
    return environment


def variables(
    processes: Sequence[ProcessSpec], settings: Settings, *, store: str, served: bool, secret: str
) -> list[dict[str, str]]:
    """Return the variables by rank. The last `settings.besides` processes do not train, and are no ranks of torch.

    >>> two = variables([ProcessSpec(argv=["a.out"])] * 2, Settings(), store="127.0.0.1:1", served=True, secret="")
    >>> [(each["RANK"], each["WORLD_SIZE"], each["LOCAL_RANK"]) for each in two]
    [('0', '2', '0'), ('1', '2', '1')]
    """
    workers = len(processes) - settings.besides
    common = {
        "PYTHONUNBUFFERED": "1",
        # Ranks started by another job's rank have a different coordinator, or none.
        "HOCKET_COORDINATOR": "",
        "HOCKET_JOINS": "",
        "HOCKET_MEMBER": "",
        **settings.to_environment(),
        "HOCKET_STORE_SERVED": str(int(served)),
    }
    ours = zip(processes, _places(processes), strict=True)
    torchs = [*_torchrun(processes[:workers]), *({} for _ in processes[workers:])]
    return [
        common
        | Settings(
            rank=rank,
            world=len(processes),
            local_rank=local_rank,
            local_world=local_world,
            host=spec.host,
            store=store,
            secret=secret,
        ).to_environment()
        | torchs[rank]
        for rank, (spec, (_, local_rank, local_world)) in enumerate(ours)
    ]


def _torchrun(workers: Sequence[ProcessSpec]) -> list[dict[str, str]]:
    """Return torchrun's variables, as `torch.distributed.elastic.agent` sets them, with rank 0 serving torch's store."""
    places, job = _places(workers), f"hocket-{secrets.token_hex(4)}"
    world, groups = str(len(workers)), str(1 + max((group for group, _, _ in places), default=0))
    return [
        {
            "RANK": str(rank),
            "WORLD_SIZE": world,
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(local_world),
            "GROUP_RANK": str(group),
            "GROUP_WORLD_SIZE": groups,
            "ROLE_NAME": "default",
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": world,
            "TORCHELASTIC_RUN_ID": job,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }
        for rank, (group, local_rank, local_world) in enumerate(places)
    ]


def _places(processes: Sequence[ProcessSpec]) -> list[tuple[int, int, int]]:
    """Return for each process its host's number in order of appearance, its position there, and the processes on that host."""
    hosts = [(spec.host, *spec.prefix) for spec in processes]
    numbers = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
    counts, seen = Counter(hosts), Counter[tuple[str | None, ...]]()
    places = []
    for host in hosts:
        places.append((numbers[host], seen[host], counts[host]))
        seen[host] += 1
    return places
