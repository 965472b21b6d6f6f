"""Parser of SLURM's lists: hosts as `gpu[01-03,7],login`, tasks per node as `2(x3),1`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from hocket.artefacts.decoding import clipped
from hocket.errors import UsageError

HOSTS_MAX = 1 << 16


def expand(text: str, *, variable: str = "SLURM_JOB_NODELIST") -> list[str]:
    """Return the hosts of a list, in order; UsageError names `variable`.

    >>> expand("gpu[01-03,7],login")
    ['gpu01', 'gpu02', 'gpu03', 'gpu7', 'login']
    """
    hosts: list[str] = []
    for item in _items(text, variable):
        parts = [_choices(part, variable) for part in re.split(r"(\[[^\[\]]*\])", item) if part]
        if len(hosts) + prod(len(part) for part in parts) > HOSTS_MAX:
            raise UsageError(f"{variable}: more than slurm.HOSTS_MAX = {HOSTS_MAX} hosts")
        hosts += ["".join(choice) for choice in product(*parts)]
    return hosts


def nodes(environment: Mapping[str, str]) -> list[str]:
    """Hosts of this step, otherwise of the job; empty outside SLURM."""
    for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        if name in environment:
            return expand(environment[name], variable=name)
    return []


def tasks_here(environment: Mapping[str, str]) -> int | None:
    """Ranks of this step on this host; None if SLURM does not give it."""
    name = next(
        (name for name in ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE") if name in environment), None
    )
    node = environment.get("SLURM_NODEID")
    if name is None or node is None:
        return None
    tasks: list[int] = []
    for item in environment[name].split(","):
        parsed = re.fullmatch(r"(\d{1,6})(?:\(x(\d{1,6})\))?", item, re.ASCII)
        repeats = int(parsed[2] or 1) if parsed else 0
        if parsed is None or len(tasks) + repeats > HOSTS_MAX:
            raise UsageError(f"{name}: `{environment[name]}` is not a list like 2(x3),1")
        tasks += [int(parsed[1])] * repeats
    if not re.fullmatch(r"\d{1,6}", node, re.ASCII) or int(node) >= len(tasks):
        raise UsageError(f"SLURM_NODEID is {node}, but {name} lists {len(tasks)} nodes")
    return tasks[int(node)]


def _items(text: str, variable: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    pattern = re.compile(r"(?:[^\[\],\s]|\[[^\[\]\s]+\])+")
    at = 0
    while True:
        found = pattern.match(text, at)
        if found is None or (found.end() < len(text) and text[found.end()] != ","):
            raise UsageError(f"{variable}: `{clipped(text)}` is not a list of hosts like gpu[01-03,7],login")
        yield found[0]
        if found.end() == len(text):
            return
        at = found.end() + 1


def _choices(part: str, variable: str) -> list[str]:
    """Return the texts that a bracket expands to; plain text expands to itself."""
    if not part.startswith("["):
        return [part]
    chosen: list[str] = []
    for item in part[1:-1].split(","):
        parsed = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", item, re.ASCII)
        if parsed is None:
            raise UsageError(
                f"{variable}: `{clipped(item)}` in `{clipped(part)}` is neither a number nor a range"
            )
        first, last = int(parsed[1]), int(parsed[2] or parsed[1])
        if last < first or len(chosen) + last - first >= HOSTS_MAX:
            raise UsageError(
                f"{variable}: range `{item}` in `{clipped(part)}` is empty, or above slurm.HOSTS_MAX"
            )
        chosen += [f"{number:0{len(parsed[1])}d}" for number in range(first, last + 1)]
    return chosen
