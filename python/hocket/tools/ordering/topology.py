"""A cloud's own tree of switches in place of measurements: the lower their common switch, the nearer are two hosts.

Three forms are supported: the answer of AWS' `aws ec2 describe-instance-topology` (`Instances`, each with `InstanceId` and
`NetworkNodes` from the top down, https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTopology.html),
the nodes of a Kubernetes cluster with their labels (`kubectl get nodes -o json`,
https://kubernetes.io/docs/reference/labels-annotations-taints/), and SLURM's `topology.conf` of trees, which NVIDIA's Topograph
writes for all clouds (https://github.com/NVIDIA/topograph/blob/main/docs/engines/slurm.md,
https://slurm.schedmd.com/topology.conf.html).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hocket import typed
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.decoding import MALFORMED, clipped, text_of, unreadable, why
from hocket.errors import ArtefactError, UsageError
from hocket.job import slurm
from hocket.planning.ordering.matrix import Matrix, build

LEAF_S = 20e-6
"""One-way latency through one switch: an ordinary data centre."""

LEVEL_FACTOR = 2.5
"""Factor of latency per level; its value hardly matters, as only the order of levels determines the nearest hosts."""

HOSTS_MAX = 1 << 12
"""Limit on hosts: a matrix of more takes minutes and gigabytes."""


REGION_AND_ZONE = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
"""Labels that Kubernetes knows, from the top down. Those of racks and switches are each cluster's own."""


def read(path: Path, hosts: Sequence[str] | None = None, labels: Sequence[str] | None = None) -> Matrix:
    """Latencies by the height of the lowest switch that two hosts share; in the order of `hosts`, or of the file.

    `labels`: of Kubernetes' nodes, from the top down; None: REGION_AND_ZONE. Raises ArtefactError when the file is no form of
    them, or lacks a host or a label.
    """
    paths = _paths(path, hosts, labels)
    names = list(paths)
    levels = np.array([[_levels(paths[a], paths[b]) for b in names] for a in names], dtype=np.float64)
    return build(names, LEAF_S * LEVEL_FACTOR**levels, None, what=(str(path), ""))


def doubts(path: Path, cluster: Cluster, labels: Sequence[str] | None = None) -> list[str]:
    """Return a sentence on each lowest switch of the file that has some hosts of several racks of the cluster, and not all of them.
    Switches within a rack, or above whole racks, are no contradiction. `labels` and errors: as `read`."""
    racks = {host.name: host.rack for host in cluster.hosts}
    ways = _paths(path, list(racks), labels)
    below: dict[tuple[str, ...], list[str]] = {}
    for host, way in ways.items():
        below.setdefault(way, []).append(host)
    divided = {
        rack for rack in racks.values() if len({ways[host] for host in racks if racks[host] == rack}) > 1
    }
    return [
        f"{path} has {', '.join(hosts)} below one switch, {'/'.join(way)}, and the cluster has them in racks "
        f"{', '.join(dict.fromkeys(racks[host] for host in hosts))}: the order follows the cluster. If that was measured, mend "
        "the labels"
        for way, hosts in below.items()
        if len(found := {racks[host] for host in hosts}) > 1 and found & divided
    ]


def _paths(
    path: Path, hosts: Sequence[str] | None, labels: Sequence[str] | None
) -> dict[str, tuple[str, ...]]:
    """Return the switches above each host, from the top down."""
    try:
        text = text_of(path)
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {unreadable(error)}") from None
    paths = _json(path, text, labels) if text.lstrip().startswith(("{", "[")) else _slurm(path, text)
    if hosts is not None:
        missing = [host for host in hosts if host not in paths]
        if missing:
            raise ArtefactError(f"{path}: it has no host {', '.join(missing)}")
        paths = {host: paths[host] for host in hosts}
    if len(paths) > HOSTS_MAX:
        raise ArtefactError(
            f"{path} has {len(paths)} hosts, at most topology.HOSTS_MAX = {HOSTS_MAX} are ordered\n"
            "hint: --hosts FILE with those of the job"
        )
    return paths


def _levels(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Number of levels of the lowest switch above both, counted from the leaves."""
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared += 1
    return max(len(one), len(other)) - shared


def _json(path: Path, text: str, labels: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    try:
        tree: Any = typed.of_json(text.encode())
    except MALFORMED as error:
        raise ArtefactError(f"{path} is damaged or truncated: {why(error)}") from None
    if isinstance(tree, dict) and "items" in tree:
        return _kubernetes(path, tree["items"], REGION_AND_ZONE if labels is None else labels)
    return _aws(path, tree)


def _kubernetes(path: Path, items: Any, labels: Sequence[str]) -> dict[str, tuple[str, ...]]:
    paths: dict[str, tuple[str, ...]] = {}
    for index, item in enumerate(items if isinstance(items, list) else ()):
        metadata = item.get("metadata") if isinstance(item, dict) and item.get("kind") == "Node" else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        own = metadata.get("labels") if isinstance(metadata, dict) else None
        if not isinstance(name, str) or not isinstance(own, dict):
            raise ArtefactError(
                f"{path}: item {index + 1} is no node with labels\nhint: kubectl get nodes -o json"
            )
        missing = [label for label in labels if not isinstance(own.get(label), str) or not own[label]]
        if missing:
            raise ArtefactError(
                f"{path}: node `{name}` has no label {', '.join(missing)}\n"
                "hint: name the labels that all nodes have, from the top down: --labels LABEL,..."
            )
        if name in paths:
            raise ArtefactError(f"{path}: node `{name}` is there twice")
        paths[name] = tuple(own[label] for label in labels)
    if not paths:
        raise ArtefactError(f"{path}: there are no nodes\nhint: kubectl get nodes -o json")
    if len(set(paths.values())) == 1 and len(paths) > 1:
        raise ArtefactError(
            f"{path}: all {len(paths)} nodes have the same {', '.join(labels)}, which tells none nearer than another\n"
            "hint: name a label of racks or switches: --labels LABEL,...; or measure, by `hocket probe`"
        )
    return paths


def _aws(path: Path, tree: Any) -> dict[str, tuple[str, ...]]:
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
    for number, content in _lines(text):
        where = f"{path}, line {number}"
        fields = [(key.lower(), value) for key, _, value in (pair.partition("=") for pair in content.split())]
        names = [value for key, value in fields if key == "switchname"]
        lists = [(key, value) for key, value in fields if key in ("nodes", "switches")]
        if len(names) != 1 or not names[0] or not lists or any("=" not in each for each in content.split()):
            raise ArtefactError(
                f"{where}: `{clipped(content)}` is not of the form SwitchName=… Nodes=… or Switches=…\n"
                "hint: lists have commas and no spaces"
            )
        for key, value in lists:
            found = leaves if key == "nodes" else above
            for each in _expanded(value, where):
                if each in found:
                    raise ArtefactError(f"{where}: `{each}` is below two switches")
                found[each] = names[0]
    if not leaves:
        raise ArtefactError(f"{path} names no host")
    return {host: _way_down(path, switch, above) for host, switch in leaves.items()}


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Non-empty lines with their numbers; lines continued by a backslash are one."""
    begun, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        first = first if begun else number
        begun += line.partition("#")[0].rstrip()
        if begun.endswith("\\"):
            begun = begun[:-1] + " "
            continue
        if begun.strip():
            yield first, begun.strip()
        begun = ""
    if begun.strip():
        yield first, begun.strip()


def _expanded(text: str, where: str) -> list[str]:
    try:
        return slurm.expand(text, variable=where)
    except UsageError as error:
        raise ArtefactError(str(error)) from None


def _way_down(path: Path, leaf: str, above: dict[str, str]) -> tuple[str, ...]:
    way = [leaf]
    while way[-1] in above:
        if above[way[-1]] in way:
            raise ArtefactError(f"{path}: switch `{leaf}` is above itself")
        way.append(above[way[-1]])
    return tuple(reversed(way))
