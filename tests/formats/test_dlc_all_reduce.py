"""All ops of an all-reduce in DLC's fields: every rule of the format holds, and they come back as they were."""

import base64
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.artefacts import trace
from hocket.artefacts.trace import FIELDS, NO_PEER, Kind, LoadedProgram, Recording, RunInfo
from hocket.errors import ArtefactError, UsageError
from hocket.tools.analysis.analyse import analyse
from hocket.tools.formats import catalogue, dlc, dlc_all_reduce
from tests.support.dlc_files import FRAGMENT, header
from tests.support.synthetic import SyntheticRun, write_trace

WITHIN = (Kind.COPY, Kind.CAST, Kind.REDUCE, Kind.APPLY, Kind.RECORD, Kind.LIBRARY, Kind.INSTANCE)
SPANS = (Kind.STEP, Kind.FORWARD, Kind.WAIT)


@st.composite
def runs(draw):
    """Any records of ranks of one job, microseconds apart; also several of one op, and of launches without a span."""
    world = draw(st.integers(2, 4))
    origin_ns = draw(st.integers(0, 10**12))
    ranks = []
    for rank in range(world):
        rows = []
        for _ in range(draw(st.integers(0, 14))):
            moves = draw(st.booleans())
            row = np.zeros((), list(FIELDS))
            row["kind"] = draw(st.sampled_from((Kind.SEND, Kind.RECV) if moves else WITHIN))
            others = [each for each in range(world) if each != rank]
            row["peer"] = draw(st.sampled_from(others)) if moves else NO_PEER
            row["program"], row["instance"] = draw(st.integers(0, 2)), 7 + draw(st.integers(0, 2))
            row["op"], row["thread"] = draw(st.integers(0, 3)), draw(st.integers(0, 1))
            row["flags"], row["bytes"] = draw(st.integers(0, 3)), draw(st.integers(0, 2**40))
            moments = sorted(draw(st.lists(st.integers(0, 10**7), min_size=3, max_size=3)))
            for name, at_us in zip(("ready_ns", "start_ns", "end_ns"), moments, strict=True):
                row[name] = origin_ns + 1000 * at_us
            rows.append(row)
        ranks.append(np.array(rows, list(FIELDS)))
    programs = (LoadedProgram(program=0, label="bucket.0, the first", bucket=0, bytes=12),)
    started = draw(st.sampled_from(("", "2026-11-22T10:11:12+00:00")))
    hosts = tuple(f"node {rank}" for rank in range(world))
    return Recording(RunInfo(world=world, hosts=hosts, programs=programs, started_at=started), tuple(ranks))


def sorted_rows(records):
    names = [name for name, _ in FIELDS]
    return records[np.lexsort([records[name] for name in names])]


def shifted(recording):
    """The records after the job's first moment, to the microsecond: what DLC's fields have."""
    known = [records for records in recording.ranks if len(records)]
    first_ns = min((records[name].min() for records in known for name in ("ready_ns", "start_ns")), default=0)
    found = []
    for records in recording.ranks:
        own = records[records["kind"] <= Kind.INSTANCE].copy()
        for name in ("ready_ns", "start_ns", "end_ns"):
            own[name] = first_ns + (own[name] - first_ns) // 1000 * 1000
        found.append(own)
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(recording=runs())
def test_every_op_comes_back(tmp_path_factory, recording):
    """A run that was kept as DLC files would be another one: an op, a time, a peer or a name would be lost."""
    folder = tmp_path_factory.mktemp("dlc")
    opened = catalogue.Opened("native", recording)
    catalogue.convert(opened, folder, "dlc")
    # Each line obeys the format's rules, as the strict parser has them.
    back = catalogue.open_trace(folder, strict=True).content
    assert isinstance(back, Recording)
    assert (back.run.world, back.run.hosts, back.run.programs) == (
        recording.run.world,
        recording.run.hosts,
        recording.run.programs,
    )
    for found, expected in zip(back.ranks, shifted(recording), strict=True):
        assert np.array_equal(sorted_rows(found), sorted_rows(expected))
        assert np.all(np.diff(found["end_ns"]) >= 0)
    # And DLC of what came back is the same text, but for the moment that a run without its start does not know.
    if recording.run.started_at == "":
        again = {rank: (head.text, batches) for rank, head, batches in dlc_all_reduce.to_dlc(back)}
        for rank, (head, batches) in again.items():
            text = head + b"".join(map(dlc.lines, batches))
            assert (folder / f"worker{rank}.txt").read_bytes() == text


@given(recording=runs())
def test_records_are_as_the_format_defines_them(recording):
    """SketchDLC's tools would count a message twice, or an op as one; or find a dependency that is not there."""
    world = recording.run.world
    for rank, head, batches in dlc_all_reduce.to_dlc(recording):
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert [row["id"] for row in rows] == list(range(len(rows)))
        times = [row["time_sec"] * 10**6 + row["time_usec"] for row in rows]
        assert times == sorted(times)
        seen = set()
        by_number = {}
        for row in rows:
            name = f"{row['key']}-{row['operation_num']}-s{row['peer']}"
            if row["id_dep"].startswith("("):
                entries = row["id_dep"][1:-2].split(".")
                assert all(entry.rpartition("-")[0].isdigit() for entry in entries)
            elif row["id_dep"] != "-1" and row["dep_type"] != 2:
                # A receive may be posted before its launch sends.
                assert row["id_dep"] in seen
            seen.add(name)
            by_number.setdefault(row["num_pp"], []).append(row)
            assert {row["src"], row["dst"]} == {rank, world + row["peer"]}
        for number, pair in by_number.items():
            begun, ended = pair
            assert ended["operation_num"] == begun["operation_num"] + 1
            assert (begun["operation"][-11:], ended["operation"][-11:]) == ("Send_Worker", "Recv_Worker")
            assert (
                begun["operation"][5:9] == ended["operation"][5:9] == ("Pull" if number % 2 == 0 else "Push")
            )
            assert min(begun["length"], ended["length"]) == 0
        own = recording.ranks[rank]
        for kind, code in ((Kind.SEND, 0), (Kind.RECV, dlc.PULL | dlc.RECV)):
            expected = own[own["kind"] == kind]["bytes"].sum()
            found = [dlc_all_reduce.messages(batch) for batch in batches]
            assert (
                sum(int(np.asarray(each.column("length"))[dlc.codes(each) == code].sum()) for each in found)
                == expected
            )
        assert dlc_all_reduce.is_all_reduce(head)


def test_iterations_are_steps_where_another_epoch_loads_other_programs():
    """Launches that count from zero again would be those of the first steps: phases of no iteration would be right."""
    rows = []
    for step in range(4):
        # A step begins where the one before ended; programs of the second epoch begin with launch 0.
        program, instance = divmod(step, 2)
        for kind, since_us, long_us in (
            (Kind.STEP, 0, 100),
            (Kind.INSTANCE, 40, 50),
            (Kind.SEND, 41, 9),
            (Kind.RECV, 42, 48),
        ):
            row = np.zeros((), list(FIELDS))
            spans = kind == Kind.STEP
            row["kind"], row["peer"] = kind, 1 if kind in (Kind.SEND, Kind.RECV) else NO_PEER
            row["program"], row["instance"] = 0 if spans else program, step + 5 if spans else instance
            row["ready_ns"] = row["start_ns"] = 1000 * (100 * step + since_us)
            row["end_ns"] = row["start_ns"] + 1000 * long_us
            rows.append(row)
    records = np.array(rows, list(FIELDS))
    run = RunInfo(world=2, hosts=("a", "b"))
    ((_, head, batches), _) = dlc_all_reduce.to_dlc(Recording(run, (records, records[:0])))
    pushed = [
        row["operation_num"]
        for batch in batches
        for row in batch.to_pylist()
        if row["operation"].endswith("Push_Send_Worker") and row["peer"] == 1
    ]
    assert pushed == [4, 8, 12, 16]
    back = dlc_all_reduce.to_native([(head, batches)]).records(0)
    assert np.array_equal(
        sorted_rows(back)[["program", "instance", "kind"]],
        sorted_rows(records[records["kind"] <= Kind.INSTANCE])[["program", "instance", "kind"]],
    )


def test_analysis_counts_messages_alone(tmp_path):
    """Ends of sends would be arrivals, and reductions traffic."""
    run = write_trace(tmp_path / "run", SyntheticRun(steps=4), comparison=False)
    catalogue.convert(catalogue.open_trace(run), tmp_path / "dlc", "dlc")
    direct, files = analyse([run]), analyse(sorted((tmp_path / "dlc").iterdir()), strict=True)
    assert files.sizes.messages == direct.sizes.messages
    assert (files.sizes.sent_bytes, files.sizes.received_bytes) == (
        direct.sizes.sent_bytes,
        direct.sizes.received_bytes,
    )
    for one, other in zip(direct.arrivals, files.arrivals, strict=True):
        assert (one.node, one.messages) == (other.node, other.messages)
        assert other.mean_us == pytest.approx(one.mean_us, rel=0.001)
    together = analyse([tmp_path / "dlc"])
    assert [each.name for each in together.keys] == [each.name for each in direct.keys]
    for one, other in zip(direct.keys, together.keys, strict=True):
        assert other.exchange.mean_us == pytest.approx(one.exchange.mean_us, abs=1)
        assert other.synchronisation.mean_us == pytest.approx(one.synchronisation.mean_us, abs=1)


def test_a_directory_of_files_becomes_a_trace_directory(tmp_path):
    """What was kept as DLC could not be looked at with the report."""
    run = write_trace(tmp_path / "run", SyntheticRun(steps=3), comparison=False)
    catalogue.convert(catalogue.open_trace(run), tmp_path / "dlc", "dlc")
    catalogue.convert(catalogue.open_trace(tmp_path / "dlc"), tmp_path / "back", "native")
    one, other = trace.read(run), trace.read(tmp_path / "back")
    for rank in range(4):
        ops = one.records(rank)
        assert len(other.records(rank)) == (ops["kind"] <= Kind.INSTANCE).sum()


def test_files_that_are_not_of_one_all_reduce_are_refused(tmp_path):
    """Ranks of two jobs would be mixed, or a damaged table name an op that was not there."""
    run = write_trace(tmp_path / "run", SyntheticRun(steps=2), comparison=False)
    folder = tmp_path / "dlc"
    catalogue.convert(catalogue.open_trace(run), folder, "dlc")
    text = (folder / "worker1.txt").read_bytes()
    (folder / "worker9.txt").write_bytes(text)
    with pytest.raises(ArtefactError, match="a file of rank 1 in a trace of 4 ranks: it is there twice"):
        catalogue.open_trace(folder)
    (folder / "worker9.txt").write_bytes(FRAGMENT.read_bytes())
    with pytest.raises(UsageError, match=r"worker9\.txt is not of an all-reduce"):
        catalogue.open_trace(folder)
    packed = text.split(dlc_all_reduce.MARK)[1].split(b"\n")[0]
    plain = zlib.decompress(base64.b64decode(packed))
    for damaged in (
        packed[:-9],
        b"AAAA",
        base64.b64encode(plain),
        base64.b64encode(zlib.compress(b"{}")),
        base64.b64encode(zlib.compress(plain.replace(b'"numbers":', b'"numbers":-'))),
    ):
        (folder / "worker9.txt").write_bytes(text.replace(packed, damaged))
        (folder / "worker1.txt").unlink(missing_ok=True)
        with pytest.raises(ArtefactError, match="table of operations is damaged"):
            catalogue.open_trace(folder)
    few = plain.replace(b'"slots":[[', b'"slots":[[],[],[],[],[],[]],"were":[[')
    (folder / "worker9.txt").write_bytes(text.replace(packed, base64.b64encode(zlib.compress(few))))
    with pytest.raises(ArtefactError, match="an operation that its header does not name"):
        catalogue.open_trace(folder)
    assert not dlc_all_reduce.is_all_reduce(dlc.Header.parse(header().encode()))
