"""Run with parameter servers in DLC's fields, designed for such runs: one file per node, one record per message.

The order of ops identifies a message of a key's program: a worker has four for each server with a piece of the key (push,
acknowledgement, pull, answer), and a server has these four for the worker. The programs determine the dependencies: an
acknowledgement waits for the pushes in the update, an answer for its pull, a push for all answers of the previous iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from hocket.artefacts.plan import Served
from hocket.artefacts.trace import Kind, Recording, Roles, RunInfo, Trace
from hocket.tools.formats import dlc
from hocket.tools.formats.dlc_native import batches_of, origin_us
from hocket.tools.formats.launches import launch_times

if TYPE_CHECKING:
    import pyarrow as pa

    from hocket.artefacts.trace import Records

PUSH, ACKNOWLEDGEMENT, PULL, ANSWER = range(4)
"""Position of a message among the four of a key in an iteration. For a first value, only worker 0 has the first two."""

INDEPENDENT, PUSH_ON_PUSH, PULL_ON_PUSH, PULL_ON_PULL, PUSH_ON_PULL = range(5)
INITIALISATION = -15

OPERATIONS = (
    ("Push_Send_Worker", "Push_Recv_Worker", "Pull_Send_Worker", "Pull_Recv_Worker"),
    ("Push_Recv_Server", "Push_Send_Server", "Pull_Recv_Server", "Pull_Send_Server"),
)
"""Names of operations, for workers and servers, then by position."""

Row = dict[str, Any]


def to_dlc(trace: Trace | Recording, roles: Roles) -> Iterator[tuple[str, dlc.Header, list[pa.RecordBatch]]]:
    """Yield each node's file: its name, header and records. Raises ArtefactError when the trace cannot be read."""
    start_us = origin_us(trace.run)
    world = roles.workers + roles.servers
    everyone = [trace.records(rank) for rank in range(world)]
    first_ns = min((int(records["start_ns"].min()) for records in everyone if len(records)), default=0)
    nodes = [_Node(trace.run, roles, rank) for rank in range(world)]
    turns = _turns(
        moment for node, records in zip(nodes, everyone, strict=True) for moment in node.dispatches(records)
    )
    for rank, (node, records) in enumerate(zip(nodes, everyone, strict=True)):
        rows = node.rows(records, first_ns, start_us, turns)
        header = dlc.Header.of(roles.workers, roles.servers, trace.run.hosts[rank], wall_clock=start_us > 0)
        yield node.name, header, [batches_of(rows, dlc.table_schema(header))[0]] if rows else []


def names(run: RunInfo) -> dict[int, str]:
    """Return the parameter of each key."""
    return {
        each.bucket: each.label.rpartition(", worker")[0]
        for each in run.programs
        if each.bucket is not None and each.worker is not None
    }


def _staleness(run: RunInfo, roles: Roles) -> dict[int, int | None]:
    routes = [] if run.plan is None else [bucket.route for bucket in run.plan.buckets]
    planned = {at: route.staleness for at, route in enumerate(routes) if isinstance(route, Served)}
    return {key: planned.get(key, roles.staleness) for key in names(run)}


Turns = dict[tuple[int, int], dict[int, int]]
"""Order in which keys were dispatched, by worker and iteration (-1: first pulls)."""


def _turns(moments: Iterable[tuple[int, int, int, int]]) -> Turns:
    """Return turns from worker, iteration, key and moment; of several moments the first one counts, which is the worker's own."""
    known: dict[tuple[int, int], dict[int, int]] = {}
    for worker, iteration, key, moment_ns in moments:
        known.setdefault((worker, iteration), {}).setdefault(key, moment_ns)
    return {
        place: {key: turn for turn, key in enumerate(sorted(keys, key=lambda key: (keys[key], key)))}
        for place, keys in known.items()
    }


class _Node:
    def __init__(self, run: RunInfo, roles: Roles, rank: int) -> None:
        self._roles, self._rank, self._staleness = roles, rank, _staleness(run, roles)
        self._serves = rank >= roles.workers
        self.name = f"server{rank - roles.workers}" if self._serves else f"worker{rank}"
        self._keys = len(names(run))
        self._programs: dict[int, tuple[int, int, bool]] = {}
        """Key and worker by program, and True if it is the program of a first value, whose number is above the key's own."""
        known: set[tuple[int, int]] = set()
        for each in sorted(run.programs, key=lambda each: each.program):
            if each.bucket is None or each.worker is None:
                continue
            pair = each.bucket, each.worker
            self._programs[each.program] = (*pair, pair in known)
            known.add(pair)

    def dispatches(self, records: Records) -> Iterator[tuple[int, int, int, int]]:
        """Yield worker, iteration and key of each push and pull, with the moment of its dispatch, nanoseconds.

        A worker dispatches both when it launches the key's program. A server only knows the first message's arrival, which replaces
        the dispatch where the worker's records are incomplete.
        """
        own = records[np.isin(records["program"], list(self._programs))]
        if self._serves:
            own = own[own["kind"] == Kind.RECV].copy()
            own["ready_ns"] = own["end_ns"]
        for (program, instance), moment_ns in launch_times(own).items():
            key, worker, first = self._programs[program]
            yield worker, -1 if first else instance, key, moment_ns

    def _first_place(self, program: int) -> int:
        """Return the first position of a program's messages. For a first value, only worker 0 has a push."""
        _, worker, first = self._programs[program]
        return PULL if first and worker != 0 else PUSH

    def rows(self, records: Records, first_ns: int, start_us: int, turns: Turns) -> list[Row]:
        """Return the messages, in order of time."""
        chosen = np.isin(records["kind"], (Kind.SEND, Kind.RECV))
        chosen &= np.isin(records["program"], list(self._programs))
        messages = records[chosen]
        sent = messages["kind"] == Kind.SEND
        time_ns = np.where(sent, messages["start_ns"], messages["end_ns"])
        order = np.argsort(time_ns, kind="stable")
        times_us = (start_us + (time_ns - first_ns) // 1000)[order].tolist()
        columns = (messages[name][order].tolist() for name in ("program", "instance", "op", "peer", "bytes"))
        ops: dict[tuple[int, int], set[int]] = {}
        for program, op, peer in np.unique(messages[["program", "op", "peer"]]).tolist():
            ops.setdefault((program, peer), set()).add(op)
        places = {
            (program, peer, op): place
            for (program, peer), own in ops.items()
            for place, op in enumerate(sorted(own), self._first_place(program))
        }
        rows = [
            self._row(
                program, instance, peer, size, place=places[program, peer, op], time_us=time_us, turns=turns
            )
            for program, instance, op, peer, size, time_us in zip(*columns, times_us, strict=True)
        ]
        self._depend(rows)
        for number, row in enumerate(rows):
            row["id"] = number
            row["time_sec"], row["time_usec"] = divmod(row.pop("time_us"), 1_000_000)
        return rows

    def _row(
        self, program: int, instance: int, peer: int, size: int, *, place: int, time_us: int, turns: Turns
    ) -> Row:
        """Return the fields of a message on its own."""
        key, worker, first = self._programs[program]
        # A worker's first is 0, and of a server's, worker 0's first push is -2.
        number = 4 * instance + place + (4 if worker == 0 and not self._serves else 2) - (4 if first else 0)
        towards_server = place in (PUSH, PULL)
        other = peer if not self._serves else worker
        ends = (self._rank, other) if towards_server != self._serves else (other, self._rank)
        iteration = -1 if first else instance
        return {
            "src": ends[0],
            "dst": ends[1],
            "length": size,
            "num_pp": self._dispatch(turns[worker, iteration][key], iteration, place),
            "operation": f"OP:= {OPERATIONS[self._serves][place]}",
            "key": key,
            "operation_num": number,
            "peer": worker if self._serves else peer - self._roles.workers,
            "time_us": time_us,
            "place": place,
        }

    def _dispatch(self, turn: int, iteration: int, place: int) -> int:
        """Return a dispatch's number: a worker dispatches the first pulls of all keys, then in each iteration all keys, a push and
        its pull together."""
        if iteration < 0:
            return INITIALISATION if place in (PUSH, ACKNOWLEDGEMENT) else turn + 1
        pull = place in (PULL, ANSWER)
        return self._keys + 1 + 2 * (iteration * self._keys + turn) + pull

    def _depend(self, rows: list[Row]) -> None:
        """Add each record's dependency, and the time since the dependency was met."""
        at: dict[tuple[int, int, int], int] = {}
        last: dict[tuple[int, int], int] = {}
        peers: dict[int, set[int]] = {}
        """Workers whose answers have an operation number, by that number."""
        for row in rows:
            at[row["key"], row["operation_num"], row["peer"]] = row["time_us"]
            if row["place"] == ANSWER:
                group = row["operation_num"], row["peer"] if self._serves else -1
                last[group] = max(last.get(group, 0), row["time_us"])
                peers.setdefault(row["operation_num"], set()).add(row["peer"])
        for row in rows:
            kind, waits, since_us, dep = self._dependency(row, at, last, peers)
            row |= {"dep_type": kind, "id_dep": waits, "dep_key": dep[0], "dep_num": dep[1]}
            row["d_time"] = 0 if since_us is None else row["time_us"] - since_us
            del row["place"]

    def _dependency(
        self,
        row: Row,
        at: dict[tuple[int, int, int], int],
        last: dict[tuple[int, int], int],
        peers: dict[int, set[int]],
    ) -> tuple[int, str, int | None, tuple[int, int]]:
        """Return `dep_type`, `id_dep`, the moment of the named record, and its key and number."""
        key, number, peer, place = row["key"], row["operation_num"], row["peer"], row["place"]
        before = number - 1
        role = dlc.ROLE[self._serves]
        one = (key, before, peer)
        if place == PUSH:
            group = before, peer if self._serves else -1
            if group not in last:
                return INDEPENDENT, "-1", None, (-1, -1)
            whose = [peer] if self._serves else sorted(peers[before])
            waits = "".join(f"{before}-{role}{each}." for each in whose)
            return PUSH_ON_PULL, f"({waits})", last[group], (-1, before)
        if one not in at:
            return INDEPENDENT, "-1", None, (-1, -1)
        if place == ACKNOWLEDGEMENT and self._serves and self._staleness[key] == 0 and number >= 0:
            workers = [each for each in range(self._roles.workers) if (key, before, each) in at]
            waits = "".join(f"{key}-{before}-w{each}." for each in workers)
            return PUSH_ON_PUSH, f"({waits})", max(at[key, before, each] for each in workers), (-1, before)
        kind = {ACKNOWLEDGEMENT: PUSH_ON_PUSH, PULL: PULL_ON_PUSH, ANSWER: PULL_ON_PULL}[place]
        return kind, f"{key}-{before}-{role}{peer}", at[one], (key, before)
