"""Reader of a DLC trace's files, one per node, as traffic: each message, the messages that it waited for, and the gaps.

A gap is from the last record that a message waited for to its own record, both in one file and so of one clock; that is `d_time` if
one record is waited for, and also holds for several. A send in the source's file and a receive in the destination's are one
message: the n-th of a key, a direction and a pair. In all-reduce runs (`tools/formats/dlc_all_reduce.py`) every worker is a server
as well, and a push is the pull of the other side. A run of Hocket with parameter servers is read through the files that it would
be written as.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hocket.artefacts.trace import Recording, Roles, Trace
from hocket.errors import ArtefactError
from hocket.tools.analysis.messages import of_dlc
from hocket.tools.formats import catalogue, dlc, dlc_all_reduce, dlc_server
from hocket.tools.formats.catalogue import Messages
from hocket.tools.replay.traffic import Message, Traffic, traffic

ENTRY = re.compile(r"(?:(\d+)-)?(-?\d+)-[sw](\d+)")
"""Parts of `id_dep`: a key or none, an operation number, the peer's number among those of its role."""

NS = 1e-9

Pair = tuple[int, int, int, int]
"""Source, destination, key, and the PULL bit of its code."""


@dataclass
class _Node:
    """Records of one file: rows without those of the set-up, and each one's dependencies as text."""

    rows: list[dict[str, Any]]
    waits: list[str]
    by_number: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    by_key: dict[tuple[int, int, int], list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for at, row in enumerate(self.rows):
            self.by_number[row["num"], row["peer"]].append(at)
            self.by_key[row["key"], row["num"], row["peer"]].append(at)

    def waited_for(self, at: int) -> list[int]:
        """Return positions of the records that a record waits for, as far as they precede it in the file."""
        found: set[int] = set()
        for key, number, peer in ENTRY.findall(self.waits[at]):
            place = int(number), int(peer)
            found.update(self.by_key[int(key), *place] if key else self.by_number[place])
        return sorted(
            other
            for other in found
            if other != at and self.rows[other]["time_ns"] <= self.rows[at]["time_ns"]
        )


def of_dlc_files(paths: Sequence[Path]) -> Traffic:
    """Return the traffic of all nodes' files.

    Raises ArtefactError: a file is no DLC trace or lacks the number of nodes, or a node that sent messages has no file.
    """
    return _of_nodes((str(path), _messages(path)) for path in paths)


def of_servers(trace: Trace | Recording, roles: Roles) -> Traffic:
    """Return the traffic of Hocket's own records of a run with parameter servers, whose programs give the dependencies.

    Raises ArtefactError when a rank's records cannot be read, or are missing.
    """
    served = dlc_server.to_dlc(trace, roles)
    return _of_nodes((name, Messages(header, batches)) for name, header, batches in served)


def _messages(path: Path) -> Messages:
    content = catalogue.open_trace(path).content
    if not isinstance(content, Messages):
        raise ArtefactError(
            f"{path} is no DLC trace\nhint: give the files of all nodes of one, or one trace directory"
        )
    return content


def _of_nodes(contents: Iterable[tuple[str, Messages]]) -> Traffic:
    nodes: dict[int, _Node] = {}
    shape: tuple[int, int] | None = None
    for path, content in contents:
        header = content.header
        if header.workers is None or header.servers is None:
            raise ArtefactError(
                f"{path}: the header has no `num_workers` or `num_servers`: nobody knows how many nodes there are"
            )
        if shape not in (None, (header.workers, header.servers)):
            raise ArtefactError(
                f"{path} is of {header.workers} workers and {header.servers} servers, the files before of another job"
            )
        shape = header.workers, header.servers
        node, read = _read(path, content)
        if node in nodes:
            raise ArtefactError(f"{path} is of node {node}, as another file before it")
        nodes[node] = read
    if shape is None:
        raise ArtefactError("a replay needs a trace")
    return _traffic(nodes, *shape)


def _read(path: str, content: Messages) -> tuple[int, _Node]:
    rows: list[dict[str, Any]] = []
    waits: list[str] = []
    for whole in content.batches:
        batch = dlc_all_reduce.messages(whole)
        found = of_dlc(batch)
        kept = np.flatnonzero(found["code"] != dlc.SETUP)
        names = (
            "code",
            "iteration",
            "node",
            "src",
            "dst",
            "length",
            "key",
            "num",
            "peer",
            "time_ns",
            "num_pp",
        )
        columns = [found[name][kept].tolist() for name in names]
        rows += [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        texts = batch.column("id_dep").to_pylist()
        waits += [texts[at] for at in kept.tolist()]
    written_by = {row["node"] for row in rows}
    if len(written_by) != 1:
        raise ArtefactError(f"{path} has records of {len(written_by)} nodes: a node has a file of its own")
    return written_by.pop(), _Node(rows, waits)


def _traffic(nodes: dict[int, _Node], workers: int, servers: int) -> Traffic:
    symmetric = workers == servers and all(node < workers for node in nodes) and _pushes_and_pulls(nodes)
    sends: dict[Pair, list[tuple[int, int]]] = defaultdict(list)
    receives: dict[Pair, list[tuple[int, int]]] = defaultdict(list)
    for number, node in nodes.items():
        for at, row in enumerate(node.rows):
            received = row["code"] & dlc.RECV
            ends = (row["src"] % workers, row["dst"] % workers) if symmetric else (row["src"], row["dst"])
            pair = *ends, row["key"], 0 if symmetric else row["code"] & dlc.PULL
            (receives if received else sends)[pair].append((number, at))
    if symmetric:
        # Messages of a pair in one launch meet in the order of their ops, whichever was under way first.
        for number_of in (sends, receives):
            for places in number_of.values():
                places.sort(key=lambda place: _turn(nodes[place[0]].rows[place[1]]))
    _check_senders(nodes, sends, receives, workers, servers)
    taken = {place: (pair, turn) for pair, places in receives.items() for turn, place in enumerate(places)}
    order = sorted(
        (nodes[number].rows[at]["time_ns"], number, at, pair, turn)
        for pair, places in sends.items()
        for turn, (number, at) in enumerate(places)
    )
    making = _Making(nodes, {(pair, turn): place for place, (pair, turn) in taken.items()}, taken)
    for _, number, at, pair, turn in order:
        making.plan(number, at, pair, turn)
    made, arrivals_s = making.messages()
    names = [f"worker {at}" for at in range(workers)] + [
        f"server {at}" for at in range(0 if symmetric else servers)
    ]
    return traffic(names, workers, made, arrivals_s)


def _turn(row: dict[str, Any]) -> tuple[int, int]:
    return row["iteration"], row["num_pp"]


def _pushes_and_pulls(nodes: dict[int, _Node]) -> bool:
    """Return whether workers only send pushes and receive the answers of their pulls, as in an all-reduce."""
    codes = {row["code"] for node in nodes.values() for row in node.rows}
    return codes <= {0, dlc.PULL | dlc.RECV}


def _check_senders(
    nodes: dict[int, _Node], sends: dict[Pair, Any], receives: dict[Pair, Any], workers: int, servers: int
) -> None:
    missing = sorted({pair[0] for pair in receives if pair not in sends and pair[0] not in nodes})
    if missing:
        named = ", ".join(f"worker {at}" if at < workers else f"server {at - workers}" for at in missing)
        raise ArtefactError(
            f"{named} sent messages, and no file of theirs was given\n"
            f"hint: a replay needs the files of all {workers} workers and {servers} servers"
        )


class _Making:
    """Messages under construction.

    A node's records are identified by position; records that several wait for get a moment of their own.
    """

    def __init__(
        self,
        nodes: dict[int, _Node],
        arrival_of: dict[tuple[Pair, int], tuple[int, int]],
        turn_of: dict[tuple[int, int], tuple[Pair, int]],
    ) -> None:
        self._nodes, self._arrival_of, self._turn_of = nodes, arrival_of, turn_of
        self._planned: list[tuple[int, int, Pair, int]] = []

    def plan(self, number: int, at: int, pair: Pair, turn: int) -> None:
        """Plan a send of a node's file."""
        self._planned.append((number, at, pair, turn))

    def messages(self) -> tuple[list[Message], list[float]]:
        """Return all messages, and each one's arrival in its destination's file (its departure, if that file has no record of
        it)."""
        made: list[Message] = []
        arrivals_s: list[float] = []
        index = self._numbered()
        moments: dict[tuple[int, tuple[int, ...]], int] = {}
        for number, at, pair, turn in self._planned:
            node = self._nodes[number]
            row = node.rows[at]
            waits = [other for other in node.waited_for(at) if (number, other) in index]
            since_ns = max((node.rows[other]["time_ns"] for other in waits), default=node.rows[0]["time_ns"])
            after = tuple(sorted({index[number, other] for other in waits}))
            if len(after) > 1:
                place = moments.get((number, after))
                if place is None:
                    place = moments[number, after] = len(self._planned) + len(moments)
                after = (place,)
            gap_s = max(0, row["time_ns"] - since_ns) * NS
            # Search and update of a server are told apart by the code, and each worker's computation by its key.
            kind = (row["code"], row["key"], pair[0]) if row["iteration"] >= 0 else ()
            made.append(Message(pair[0], pair[1], row["length"], after, gap_s, row["iteration"], kind))
            arrival = self._arrival_of.get((pair, turn))
            record = row if arrival is None else self._nodes[arrival[0]].rows[arrival[1]]
            arrivals_s.append(record["time_ns"] * NS)
        for (number, after), _ in sorted(moments.items(), key=lambda item: item[1]):
            made.append(Message(number, number, 0, after, 0.0, -1))
            arrivals_s.append(0.0)
        return made, arrivals_s

    def _numbered(self) -> dict[tuple[int, int], int]:
        """Return the message of each record of each node."""
        sent = {(pair, turn): at for at, (_, _, pair, turn) in enumerate(self._planned)}
        index = {(number, at): place for place, (number, at, _, _) in enumerate(self._planned)}
        index |= {place: sent[turn] for place, turn in self._turn_of.items() if turn in sent}
        return index
