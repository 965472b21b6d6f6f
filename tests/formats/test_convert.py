"""`hocket trace convert`: every format that is written, what it keeps, and that what it loses is said."""

import itertools
import json
import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hocket.artefacts import trace
from hocket.artefacts.trace import Kind
from hocket.cli.trace import command
from hocket.errors import ArtefactError, UsageError
from hocket.tools.formats import catalogue, chakra, dlc
from tests.support.dlc_files import FRAGMENT, VECTORS
from tests.support.synthetic import SyntheticRun, write_trace

STEPS = 6


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory):
    """A trace of 4 ranks, 5 buckets, a few steps."""
    return write_trace(tmp_path_factory.mktemp("run"), SyntheticRun(steps=STEPS), comparison=False)


def convert(*arguments):
    runner = CliRunner()
    done = runner.invoke(
        command, ["convert", *map(str, arguments)], catch_exceptions=False, standalone_mode=False
    )
    return done.output


def test_a_run_comes_back_from_parquet(run_directory, tmp_path):
    """A trace that was kept in Parquet could not be looked at with Hocket's own tools."""
    said = convert(run_directory, tmp_path / "t.parquet")
    assert "lost: what scripts logged" in said
    convert(tmp_path / "t.parquet", tmp_path / "back")
    one, other = trace.read(run_directory), trace.read(tmp_path / "back")
    assert other.run == one.run
    for rank in range(4):
        assert np.array_equal(one.records(rank), other.records(rank))


@pytest.mark.parametrize("form", ["run", "dlc"])
def test_others_read_our_parquet(run_directory, tmp_path, form):
    duckdb = pytest.importorskip("duckdb")
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    path = tmp_path / "t.parquet"
    convert(run_directory if form == "run" else FRAGMENT, path)
    if form == "run":
        query = f"select count(*), sum(bytes) from '{path}' where kind_name = 'send' and peer is not null"  # noqa: S608
        sends = [each[each["kind"] == Kind.SEND] for each in map(trace.read(run_directory).records, range(4))]
        expected = sum(map(len, sends)), sum(int(each["bytes"].sum()) for each in sends)
    else:
        query = f"select count(*), sum(length) from '{path}' where operation like '%Push_Send_Worker'"  # noqa: S608
        expected = 16, 3_449_240
    assert duckdb.connect().execute(query).fetchall() == [expected]
    assert len(pandas.read_parquet(path)) == len(polars.read_parquet(path))
    assert list(pandas.read_parquet(path).columns) == polars.read_parquet(path).columns


def test_dlc_of_an_all_reduce_run_keeps_volumes_and_phases(run_directory, tmp_path):
    """The documented mapping would be another: who sent how much to whom, and when buckets began and ended."""
    convert(run_directory, tmp_path / "dlc", "--format", "dlc")
    run = trace.read(run_directory)
    for rank in range(4):
        reader = dlc.Reader(tmp_path / "dlc" / f"worker{rank}.txt", strict=True)
        rows = [row for batch in reader.batches() for row in batch.to_pylist()]
        records = run.records(rank)
        for kind, way in ((Kind.SEND, "Push_Send_Worker"), (Kind.RECV, "Pull_Recv_Worker")):
            chosen = records[records["kind"] == kind]
            own = [row for row in rows if row["operation"].endswith(way) and row["peer"] != rank]
            assert sum(row["length"] for row in own) == int(chosen["bytes"].sum())
            assert {row["peer"] for row in own} == set(chosen["peer"].tolist())
            assert len(own) == len(chosen)
        assert [row["id"] for row in rows] == list(range(len(rows)))
        moved = [row["time_sec"] * 10**6 + row["time_usec"] for row in rows if row["length"]]
        first, last = min(moved), max(moved)
        messages = records[np.isin(records["kind"], (Kind.SEND, Kind.RECV))]
        span_us = (
            messages["end_ns"].max() - messages["start_ns"][messages["kind"] == Kind.SEND].min()
        ) // 1000
        assert abs(int(span_us) - (last - first)) <= 1


def test_goal_can_be_replayed(run_directory, tmp_path):
    """LogGOPSim would wait for ever, or send to nobody: the text is run here on its own rules."""
    path = tmp_path / "t.goal"
    assert "lost: programs, iterations" in convert(run_directory, path)
    text = path.read_text()
    assert text.startswith("num_ranks 4\n")
    ranks = re.findall(r"rank (\d+) \{\n(.*?)\}", text, re.DOTALL)
    assert [int(rank) for rank, _ in ranks] == [0, 1, 2, 3]
    ops, needs, sent, received = {}, {}, {}, {}
    for name, body in ranks:
        rank = int(name)
        for line in body.splitlines():
            if made := re.fullmatch(
                r"(l\d+): (calc \d+|(send|recv) (\d+)b (?:to|from) (\d+) tag (\d+))", line
            ):
                label, _, way, size, peer, tag = made.groups()
                ops[rank, label] = way
                ends = (rank, int(peer)) if way == "send" else (int(peer or 0), rank)
                book = {"send": sent, "recv": received}.get(way)
                if book is not None:
                    assert book.setdefault((*ends, int(tag)), (rank, label, int(size))) == (
                        rank,
                        label,
                        int(size),
                    )
            else:
                label, before = re.fullmatch(r"(l\d+) requires (l\d+)", line).groups()
                needs.setdefault((rank, label), []).append((rank, before))
    assert sent.keys() == received.keys()
    match = {received[each][:2]: sent[each][:2] for each in sent}
    # A receive is over when its message was sent; static_order refuses a circle.
    order = TopologicalSorter({op: [*needs.get(op, ()), *([match[op]] if op in match else [])] for op in ops})
    assert len(list(order.static_order())) == len(ops)


def test_chakra_of_a_run(run_directory, tmp_path):
    """ASTRA-sim would replay other collectives than the run had, or in another order."""
    convert(run_directory, tmp_path / "t.et")
    sizes = [program.bytes for program in trace.read(run_directory).run.programs]
    for rank in range(4):
        nodes = chakra.read(tmp_path / f"t.{rank}.et").nodes
        collectives = [node for node in nodes if node.type == chakra.NodeType.COLLECTIVE]
        assert [node.attributes["comm_size"] for node in collectives] == sizes * STEPS
        assert all(dependency < node.id for node in nodes for dependency in node.data_deps)
        computed = sum(node.duration_us for node in nodes if node.type == chakra.NodeType.COMPUTE)
        records = trace.read(run_directory).records(rank)
        steps = records[records["kind"] == Kind.STEP]
        assert 0 < computed < (steps["end_ns"] - steps["start_ns"]).sum() / 1000


def test_chrome_has_a_slice_per_track(run_directory, tmp_path):
    """Perfetto would draw concurrent flows into one another."""
    convert(run_directory, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    by_track = {}
    for event in events:
        if event["ph"] == "X":
            by_track.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["dur"]))
    for slices in by_track.values():
        slices.sort()
        assert all(
            start + length <= after + 1e-3 for (start, length), (after, _) in itertools.pairwise(slices)
        )
    records = sum(len(trace.read(run_directory).records(rank)) for rank in range(4))
    assert sum(map(len, by_track.values())) == records


def test_dlc_becomes_records(tmp_path):
    """A trace of SketchDLC's could not be seen in Perfetto or in the report."""
    said = convert(FRAGMENT, tmp_path / "run")
    assert "lost: what a record waits for" in said
    records = trace.read(tmp_path / "run").records(0)
    assert Counter(records["kind"].tolist()) == {Kind.SEND: 32, Kind.RECV: 32, Kind.INSTANCE: 16}
    convert(tmp_path / "run", tmp_path / "t.json")


def test_strict_refuses_what_is_not_whole(run_directory, tmp_path):
    """A damaged trace would be converted in silence."""
    path = tmp_path / "t.txt"
    path.write_bytes(FRAGMENT.read_bytes()[:-1])
    assert "67 whole records" in convert(path, tmp_path / "t.parquet")
    with pytest.raises(ArtefactError, match="ends within a line"):
        convert(path, tmp_path / "t2.parquet", "--strict")
    assert {each.name for each in tmp_path.iterdir()} == {"t.txt", "t.parquet"}
    convert(path, path)
    assert path.read_bytes() == FRAGMENT.read_bytes()[: path.stat().st_size]
    with pytest.raises(ArtefactError, match="ranks' files are not there"):
        convert(VECTORS / "kineto-resnet50-ddp-2xa100.json.gz", tmp_path / "k", "--strict")


def test_wrong_names(tmp_path):
    """A typing error would end in a traceback, or in a file of another format."""
    with pytest.raises(UsageError, match="does not say its format"):
        convert(FRAGMENT, tmp_path / "t.xyz")
    with pytest.raises(ArtefactError, match="cannot be read"):
        convert(tmp_path / "none.txt", tmp_path / "t.parquet")
    (tmp_path / "x.bin").write_bytes(b"\x00\x01")
    with pytest.raises(UsageError, match="of no format that is read"):
        convert(tmp_path / "x.bin", tmp_path / "t.parquet")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(ArtefactError, match="no Parquet file"):
        convert(tmp_path / "x.parquet", tmp_path / "t")


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [("src", None, "rows without `src`"), ("operation", "Push", "does not know: Push")],
)
def test_parquet_that_others_changed(tmp_path, column, value, said):
    """A table that another tool spoiled would end in a traceback, or in a damaged trace."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    convert(FRAGMENT, tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    schema = table.schema
    rows = table.to_pylist()
    rows[40][column] = value
    fields = [each.with_nullable(True) for each in schema]
    changed = pa.Table.from_pylist(rows, pa.schema(fields, metadata=schema.metadata))
    pq.write_table(changed, tmp_path / "changed.parquet")
    with pytest.raises(ArtefactError, match=said):
        convert(tmp_path / "changed.parquet", tmp_path / "t.txt")


def test_every_format_is_documented():
    """What a conversion loses would be nowhere to read before it is done."""
    text = (Path(__file__).parents[2] / "docs/traces.md").read_text()
    for each in catalogue.FORMATS.values():
        assert f"`{each.name}`" in text
        for loss in (each.reading, each.from_records, each.from_dlc):
            assert (loss or "") in text
