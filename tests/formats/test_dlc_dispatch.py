"""Our runs as DLC files, where the format asks for more than messages say: dispatch numbers, lengths, wall clock."""

import numpy as np
import pytest

from hocket.artefacts.trace import FIELDS, NO_PEER, Kind, LoadedProgram, Recording, Roles, RunInfo
from hocket.tools.formats import dlc, dlc_all_reduce, dlc_native, dlc_server

KEYS = 4
LEFT = (3, 2, 0, 1)
"""In which order keys are launched, as backward makes gradients."""

SERVER = 1


def record(kind, program, instance, *, op=0, peer=NO_PEER, ready_ns, end_ns):
    values = np.zeros(1, list(FIELDS))
    fields = {"kind": kind, "program": program, "instance": instance, "op": op, "peer": peer, "bytes": 100}
    for name, value in {**fields, "ready_ns": ready_ns, "start_ns": ready_ns, "end_ns": end_ns}.items():
        values[name] = value
    return values


def served(*, launches=True):
    """Worker 0 and a server: first values, by programs of their own, and one iteration. Every message of one takes 1 µs, keys are
    100 µs apart; the last key to leave arrives first."""
    worker, server = [], []
    for phase, order in enumerate((range(KEYS), LEFT)):
        for turn, key in enumerate(order):
            program = key if phase else KEYS + key
            at = 1_000_000 * (1 + phase) + 100_000 * turn
            if launches:
                worker.append(
                    record(Kind.INSTANCE, program, 0, op=0, peer=NO_PEER, ready_ns=at, end_ns=at + 50_000)
                )
            # The first to leave is held back on its way.
            late = 1_000_000 - 200_000 * turn if phase else 0
            for place, (op, kind) in enumerate(zip(range(4), (Kind.SEND, Kind.RECV) * 2, strict=True)):
                sent = at + late + 1000 * place + 500
                worker.append(record(kind, program, 0, op=op, peer=SERVER, ready_ns=sent, end_ns=sent + 1000))
            for place, (op, kind) in enumerate(zip((0, 2, 3, 5), (Kind.RECV, Kind.SEND) * 2, strict=True)):
                sent = at + late + 1000 * place + 500
                server.append(record(kind, program, 0, op=op, peer=0, ready_ns=sent, end_ns=sent + 1000))
    programs = tuple(
        LoadedProgram(
            program=program,
            label=f"key {program % KEYS}, worker 0",
            bucket=program % KEYS,
            worker=0,
            bytes=100,
        )
        for program in range(2 * KEYS)
    )
    run = RunInfo(
        world=2,
        hosts=("a", "b"),
        script="train.py",
        started_at="2026-11-22T00:00:00+00:00",
        programs=programs,
        roles=Roles(workers=1, servers=1, staleness=0),
    )
    return Recording(run, (np.concatenate(worker), np.concatenate(server)))


def rows(files):
    return {name: [row for batch in batches for row in batch.to_pylist()] for name, _, batches in files}


@pytest.mark.parametrize("launches", [True, False])
def test_keys_are_numbered_in_the_order_in_which_they_were_launched(launches):
    """A trace would say that the first key was dispatched first, whatever the worker did."""
    recording = served(launches=launches)
    files = rows(dlc_server.to_dlc(recording, recording.run.roles))
    # Without records of the launches the first message of each key says when it was dispatched.
    order = LEFT if launches else LEFT[::-1]
    for node, records in files.items():
        numbers = {
            (row["key"], row["operation"].split()[1][:4]): row["num_pp"]
            for row in records
            if row["num_pp"] > KEYS
        }
        for turn, key in enumerate(order):
            assert numbers[key, "Push"] == KEYS + 1 + 2 * turn, node
            assert numbers[key, "Pull"] == KEYS + 2 + 2 * turn, node


def test_keys_of_an_all_reduce_are_numbered_in_the_order_in_which_they_were_launched():
    """The first bucket whose message came through would be taken for the first that was launched."""
    parts = []
    for turn, key in enumerate(LEFT):
        at = 1_000_000 + 100_000 * turn
        late = 1_000_000 - 200_000 * turn
        parts.append(record(Kind.INSTANCE, key, 0, op=0, peer=NO_PEER, ready_ns=at, end_ns=at + late + 2000))
        parts.append(record(Kind.SEND, key, 0, op=0, peer=1, ready_ns=at + late, end_ns=at + late + 1000))
        parts.append(record(Kind.RECV, key, 0, op=1, peer=1, ready_ns=at + late, end_ns=at + late + 2000))
    programs = tuple(LoadedProgram(program=key, label="", bucket=key, bytes=100) for key in range(KEYS))
    run = RunInfo(world=2, hosts=("a", "b"), script="train.py", programs=programs)
    files = rows(dlc_all_reduce.to_dlc(Recording(run, (np.concatenate(parts),) * 2)))
    pushes = {row["num_pp"]: row["key"] for row in files[0] if "Push" in row["operation"]}
    dispatched = [key for _, key in sorted(pushes.items())]
    assert list(dict.fromkeys(dispatched)) == list(LEFT)
    assert dispatched == sorted(dispatched, key=LEFT.index)


def test_the_header_says_what_is_not_as_the_format_defines_it():
    """Lengths without metadata, or times since the first record, would be taken for what the format says."""
    recording = served()
    for _, header, _ in dlc_server.to_dlc(recording, recording.run.roles):
        assert b"\nlength: bytes of content; headers of frames" in header.text
        assert b"time_sec:" not in header.text
    run = RunInfo(world=2, hosts=("a", "b"), script="train.py", programs=())
    (first, _) = dlc_all_reduce.to_dlc(Recording(run, (np.empty(0, list(FIELDS)),) * 2))
    assert b"\ntime_sec: since the first record of the trace" in first[1].text


def test_the_initialisation_of_a_server_keeps_its_operations_apart():
    """Two messages of a key would be one operation in Hocket's records."""
    recording = served()
    name, header, batches = list(dlc_server.to_dlc(recording, recording.run.roles))[1]
    assert name == "server0"
    records = dlc_native.to_native(header, batches).records(SERVER)
    messages = records[np.isin(records["kind"], (Kind.SEND, Kind.RECV)) & (records["program"] == 0)]
    assert sorted(messages["op"].tolist()) == list(range(8))
    assert dlc.Header.parse(header.text).workers == 1
