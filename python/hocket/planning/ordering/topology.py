"""A cloud's own tree of switches in place of measurements: hosts are nearer, the lower the switch that they share.

Two forms are supported: the answer of AWS' `aws ec2 describe-instance-topology` (`Instances`, each with `InstanceId`
and
`NetworkNodes` from the top down, https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTopology.html), and
SLURM's `topology.conf` of trees, which NVIDIA's Topograph writes for all clouds
(https://github.com/NVIDIA/topograph/blob/main/docs/engines/slurm.md, https://slurm.schedmd.com/topology.conf.html).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hocket.errors import ArtefactError
from hocket.planning.ordering.matrix import Matrix, build

LEAF_S = 20e-6
"""One-way latency through one switch: an ordinary data centre."""

LEVEL_FACTOR = 2.5
"""Factor per level; only the order of levels determines who is near, so its value hardly matters."""

LIST = re.compile(r"([^,\[\]]*)\[([^\[\]]*)\]([^,\[\]]*)|([^,\[\]]+)")


def read(path: Path, hosts: Sequence[str] | None = None) -> Matrix:
    """Latencies by the height of the lowest switch that two hosts share; in the order of `hosts`, or of the file.

    Raises ArtefactError when the file is neither form, or lacks a host.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ArtefactError(f"{path} cannot be read: {reason}") from None
    paths = _aws(path, text) if text.lstrip().startswith(("{", "[")) else _slurm(path, text)
    if hosts is not None:
        missing = [host for host in hosts if host not in paths]
        if missing:
            raise ArtefactError(f"{path}: it has no host {', '.join(missing)}")
        paths = {host: paths[host] for host in hosts}
    names = list(paths)
    levels = np.array([[_levels(paths[a], paths[b]) for b in names] for a in names], dtype=np.float64)
    return build(names, LEAF_S * LEVEL_FACTOR**levels, None, what=(str(path), ""))


def _levels(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Number of levels of the lowest switch above both, counted from the leaves."""
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared += 1
    return max(len(one), len(other)) - shared


def _aws(path: Path, text: str) -> dict[str, tuple[str, ...]]:
    try:
        tree: Any = msgspec.json.decode(text.encode())
    except msgspec.DecodeError as error:
        raise ArtefactError(f"{path} is damaged or truncated: {error}") from None
    instances = tree.get("Instances") if isinstance(tree, dict) else None
    if not isinstance(instances, list) or not instances:
        raise ArtefactError(
            f"{path}: there are no `Instances`\nhint: aws ec2 describe-instance-topology --output json"
        )
    paths: dict[str, tuple[str, ...]] = {}
    for index, instance in enumerate(instances):
        name = instance.get("InstanceId") if isinstance(instance, dict) else None
        nodes = instance.get("NetworkNodes") if isinstance(instance, dict) else None
        if not isinstance(name, str) or not isinstance(nodes, list) or not nodes:
            raise ArtefactError(f"{path}: instance {index + 1} has no `InstanceId` with `NetworkNodes`")
        if name in paths:
            raise ArtefactError(f"{path}: instance `{name}` is there twice")
        paths[name] = (str(instance.get("AvailabilityZone", "")), *map(str, nodes))
    return paths


def _slurm(path: Path, text: str) -> dict[str, tuple[str, ...]]:
    above: dict[str, str] = {}
    leaves: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        fields = dict(pair.partition("=")[::2] for pair in content.split())
        keys = {key.lower(): value for key, value in fields.items()}
        name = keys.get("switchname")
        if name is None or not ({"nodes", "switches"} & set(keys)):
            raise ArtefactError(
                f"{path}, line {number}: `{content}` is not of the form SwitchName=… Nodes=… or Switches=…"
            )
        for below, found in ((keys.get("switches", ""), above), (keys.get("nodes", ""), leaves)):
            for each in _expanded(path, number, below):
                if each in found:
                    raise ArtefactError(f"{path}, line {number}: `{each}` is below two switches")
                found[each] = name
    if not leaves:
        raise ArtefactError(f"{path} names no host")
    return {host: _way_down(path, switch, above) for host, switch in leaves.items()}


def _way_down(path: Path, leaf: str, above: dict[str, str]) -> tuple[str, ...]:
    way = [leaf]
    while way[-1] in above:
        if above[way[-1]] in way:
            raise ArtefactError(f"{path}: switch `{leaf}` is above itself")
        way.append(above[way[-1]])
    return tuple(reversed(way))


def _expanded(path: Path, number: int, text: str) -> list[str]:
    """Expand SLURM's lists: `a[0-2,7],b`."""
    names: list[str] = []
    for head, ranges, tail, plain in LIST.findall(text):
        if plain:
            names.append(plain)
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            last = last or first
            if not (first.isdigit() and last.isdigit() and int(first) <= int(last) < int(first) + 100_000):
                raise ArtefactError(f"{path}, line {number}: `{part}` is not a range")
            names += [f"{head}{at:0{len(first)}d}{tail}" for at in range(int(first), int(last) + 1)]
    return names
