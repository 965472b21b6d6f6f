"""Conversion of Hocket's records to Chakra nodes and back: computation until a launch, and the program as a collective."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hocket.artefacts.trace import FIELDS, NO_PEER, Kind, LoadedProgram, Recording, RunInfo, Trace
from hocket.errors import ArtefactError
from hocket.tools.formats import chakra
from hocket.tools.formats.chakra import CollectiveType, EtFile, Node, NodeType
from hocket.tools.formats.launches import iterations

if TYPE_CHECKING:
    from hocket.artefacts.trace import Records

WORLD_MAX = 1 << 16


def write(trace: Trace | Recording, stem: Path) -> int:
    """Write `STEM.RANK.et` of each rank; return the number of nodes. Raises ArtefactError when the trace has no program.

    Every program becomes an all-reduce of its bytes, as plans make it for gradients.
    """
    stem = stem.with_suffix("") if stem.suffix == ".et" else stem
    sizes = {program.program: program.bytes for program in trace.run.programs}
    labels = {program.program: program.label for program in trace.run.programs}
    ranks = [_nodes(trace.records(rank), sizes, labels) for rank in range(trace.run.world)]
    if not all(ranks):
        rank = [bool(nodes) for nodes in ranks].index(False)
        raise ArtefactError(
            f"rank {rank} launched no program: there is nothing that a Chakra trace could say"
        )
    for rank, nodes in enumerate(ranks):
        chakra.write(stem.with_name(f"{stem.name}.{rank}.et"), EtFile(tuple(nodes), chakra.VERSION))
    return sum(map(len, ranks))


def _nodes(records: Records, sizes: dict[int, int], labels: dict[int, str]) -> list[Node]:
    nodes: list[Node] = []
    before: list[int] = []
    for iteration in iterations(records):
        launched, now_ns = [], iteration.start_ns
        for launch in iteration.launches:
            label = labels.get(launch.program) or f"program {launch.program}"
            duration_us = max(0, round((launch.ready_ns - now_ns) / 1000))
            nodes.append(
                chakra.compute(len(nodes), f"compute before {label}, {iteration.number}", duration_us, before)
            )
            before, now_ns = [nodes[-1].id], max(now_ns, launch.ready_ns)
            size = sizes.get(launch.program) or launch.bytes
            name = f"{label}, {iteration.number}"
            nodes.append(chakra.collective(len(nodes), name, CollectiveType.ALL_REDUCE, size, before))
            launched.append(nodes[-1].id)
        last_ns = max(launch.end_ns for launch in iteration.launches)
        duration_us = max(0, round((iteration.end_ns - max(last_ns, now_ns)) / 1000))
        nodes.append(
            chakra.compute(len(nodes), f"end of {iteration.number}", duration_us, [*before, *launched])
        )
        before = [nodes[-1].id]
    return nodes


def family(path: Path) -> list[Path]:
    """Return all ranks' files of the job of `path`: `NAME.0.et`, `NAME.1.et`, …; the file alone when it has no number."""
    stem, _, number = path.name.removesuffix(".et").rpartition(".")
    if not path.name.endswith(".et") or not number.isdigit():
        return [path]
    found: list[Path] = []
    while len(found) < WORLD_MAX and (each := path.with_name(f"{stem}.{len(found)}.et")).exists():
        found.append(each)
    return found if path in found else [path]


def read(path: Path) -> tuple[Recording, list[str]]:
    """Return nodes with a time as records of their kind, and notes on the others.

    Messages and collectives without a size are counted, not guessed. Raises ArtefactError as `chakra.read`.
    """
    files = family(path)
    notes: list[str] = []
    programs: dict[str, int] = {}
    sizes: dict[int, int] = {}
    ranks = []
    for rank, each in enumerate(files):
        file = chakra.read(each)
        if file.truncated:
            notes.append(
                f"{each}: ends within a message; the {len(file.nodes)} whole nodes before it are there"
            )
        notes += unknown(each, file)
        ranks.append(_records(each, file, programs, sizes))
        for node in file.nodes:
            for peer in (node.attributes.get("comm_src"), node.attributes.get("comm_dst")):
                if isinstance(peer, int) and peer >= len(files):
                    raise ArtefactError(
                        f"{each}: node {node.id} speaks with rank {peer}; there is no file of it (rank {rank})"
                    )
    loaded = tuple(
        LoadedProgram(program=number, label=name, bytes=sizes.get(number, 0))
        for name, number in programs.items()
    )
    names = tuple(f"rank {rank}" for rank in range(len(files)))
    return Recording(
        RunInfo(world=len(files), hosts=names, script=path.name, programs=loaded), tuple(ranks)
    ), notes


def unknown(path: Path, file: EtFile) -> list[str]:
    """Return unknown facts about a file's communication: a sentence each."""
    collectives = [node for node in file.nodes if node.type == NodeType.COLLECTIVE]
    bare = [node for node in collectives if not {"comm_type", "comm_size"} <= node.attributes.keys()]
    notes = []
    if bare:
        notes.append(
            f"{path}: {len(bare)} of {len(collectives)} collectives carry no type and size (such as `{bare[0].name}`); the other "
            f"{len(collectives) - len(bare)} do"
        )
    known = {node.id for node in file.nodes}
    lost = sum(dependency not in known for node in file.nodes for dependency in node.data_deps)
    if lost:
        notes.append(f"{path}: {lost} dependencies are on nodes that are not in the file")
    return notes


def _in_order(path: Path, nodes: tuple[Node, ...]) -> list[Node]:
    """Return each node after its data dependencies. Raises ArtefactError for a cycle."""
    by_id = {node.id: node for node in nodes}
    graph = {node.id: [each for each in node.data_deps if each in by_id] for node in nodes}
    try:
        return [by_id[each] for each in TopologicalSorter(graph).static_order()]
    except CycleError as error:
        raise ArtefactError(f"{path}: nodes {error.args[1]} wait for one another") from None


def _records(path: Path, file: EtFile, programs: dict[str, int], sizes: dict[int, int]) -> Records:
    """Return a record per node. Without start times, a node starts when its dependencies have ended."""
    ends: dict[int, int] = {}
    rows = []
    timed = any(node.start_us for node in file.nodes)
    kinds: dict[int, Kind] = {
        NodeType.SEND: Kind.SEND,
        NodeType.RECEIVE: Kind.RECV,
        NodeType.COLLECTIVE: Kind.INSTANCE,
    }
    for position, node in enumerate(_in_order(path, file.nodes)):
        ready_us = max((ends.get(each, 0) for each in node.data_deps), default=0)
        start_us = node.start_us if timed else ready_us
        ends[node.id] = start_us + node.duration_us
        kind = kinds.get(node.type, Kind.APPLY)
        number = programs.setdefault(node.name, len(programs)) if kind != Kind.APPLY else 0
        size = node.attributes.get("comm_size", 0)
        size = size if isinstance(size, int) else 0
        if kind == Kind.INSTANCE:
            sizes[number] = size
        peer = node.attributes.get("comm_dst", node.attributes.get("comm_src", NO_PEER))
        times = (start_us * 1000, start_us * 1000, ends[node.id] * 1000)
        peer = peer if isinstance(peer, int) and kind in (Kind.SEND, Kind.RECV) else NO_PEER
        rows.append((*times, size, number, 0, position, peer, kind, 0, 0, 0))
    try:
        return np.array(rows, list(FIELDS))
    except OverflowError:
        raise ArtefactError(f"{path}: a node has a time, a size or a peer that no record can hold") from None
