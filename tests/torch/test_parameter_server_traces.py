"""What a recorded run with parameter servers is as a DLC trace: every rule of the format, and every question answered."""

import filecmp
import re
from itertools import pairwise

import pytest

from hocket.artefacts import trace as artefact
from hocket.settings import Settings
from hocket.tools.analysis.analyse import analyse
from hocket.tools.formats import catalogue, dlc
from hocket.tools.formats.launches import launch_times
from hocket.tools.replay.run import traffic_of
from hocket.tools.replay.simulated import predict
from hocket.tools.replay.workers import with_workers
from hocket.tools.simulation.networks import star
from tests.support import ranks
from tests.support.independent import assert_equal_numbers
from tests.torch.server_scripts import STEPS

WORKERS, SERVERS = 2, 2
KEYS = 6
SPLIT = 2
"""The key of `wide.weight`, which both servers have half of."""


@pytest.fixture(scope="module", params=["0", "any"])
def run(request, tmp_path_factory):
    """The mode and the trace directory of a run of `server_scripts.train`, and its DLC files."""
    directory = tmp_path_factory.mktemp(f"staleness-{request.param}")
    settings = Settings(
        servers=SERVERS,
        staleness=request.param,
        trace=str(directory / "trace"),
        server_bucket_bytes=0,
        timeout_s=60,
        start_timeout_s=60,
    )
    ended = ranks.run(
        "tests.torch.server_scripts:train", WORKERS + SERVERS, directory, "sgd", "1024", settings=settings
    )
    assert ended.outcome.code == 0, ended.output
    catalogue.convert(catalogue.open_trace(directory / "trace"), directory / "dlc", "dlc")
    return request.param, directory


def rows(path):
    """The records, by the format's own names, read strictly."""
    reader = dlc.Reader(path, strict=True)
    return [row for batch in reader.batches() for row in batch.to_pylist()]


def own(row, serves):
    return f"{row['key']}-{row['operation_num']}-{'w' if serves else 's'}{row['peer']}"


def files(run):
    return {path.stem: rows(path) for path in sorted((run[1] / "dlc").iterdir())}


def test_there_is_a_file_for_each_node(run):
    """A node's messages would be missing."""
    assert list(files(run)) == ["server0", "server1", "worker0", "worker1"]


def test_operations_are_numbered_as_the_format_says(run):
    """SketchDLC's tools would take initialisation for training, or one iteration for another."""
    for node, records in files(run).items():
        serves = node.startswith("server")
        for key in {row["key"] for row in records}:
            for peer in {row["peer"] for row in records if row["key"] == key}:
                numbers = [
                    row["operation_num"] for row in records if (row["key"], row["peer"]) == (key, peer)
                ]
                initialises = peer == 0 if serves else node == "worker0"
                first = (-2 if initialises else 0) if serves else 0
                count = 4 * STEPS + (4 if initialises else 2)
                assert numbers == list(range(first, first + count)), (node, key, peer)


def test_what_a_message_is_follows_from_its_number(run):
    """Pushes would be counted as pulls, or answers as requests."""
    order = ["Push_Send", "Push_Recv", "Pull_Send", "Pull_Recv"]
    for node, records in files(run).items():
        serves = node.startswith("server")
        for row in records:
            shift = row["operation_num"] + (2 if serves or node != "worker0" else 0)
            what, way = order[shift % 4].split("_")
            if serves:
                way = {"Send": "Recv", "Recv": "Send"}[way]
            assert row["operation"] == f"OP:= {what}_{way}_{'Server' if serves else 'Worker'}"


def test_every_dependency_is_there_and_before(run):
    """A replay would wait for what never comes, or send before its time."""
    for node, records in files(run).items():
        serves = node.startswith("server")
        times = {own(row, serves): row["time_sec"] * 10**6 + row["time_usec"] for row in records}
        for row in records:
            at = row["time_sec"] * 10**6 + row["time_usec"]
            if row["id_dep"] == "-1":
                assert (row["dep_type"], row["d_time"]) == (0, 0)
            elif not row["id_dep"].startswith("("):
                assert row["d_time"] == at - times[row["id_dep"]] >= 0
            else:
                entries = row["id_dep"][1:-2].split(".")
                waited = [
                    each
                    for each in times
                    if any(
                        each == entry or (each.endswith(f"-{entry}") and entry.count("-") == 1)
                        for entry in entries
                    )
                ]
                assert len(waited) >= len(entries)
                assert max(times[each] for each in waited) <= at


def test_synchronous_updates_wait_for_all_and_others_for_one(run):
    """A server's update would be measured from the wrong push."""
    for node, records in files(run).items():
        for row in records:
            training = node.startswith("server") and row["operation_num"] > 2
            if training and row["operation"].endswith("Push_Send_Server"):
                key, before = row["key"], row["operation_num"] - 1
                everyone = f"({key}-{before}-w0.{key}-{before}-w1.)"
                assert row["id_dep"] == (everyone if run[0] == "0" else f"{key}-{before}-w{row['peer']}")


def test_dispatch_numbers_alternate_and_are_shared_by_both_records(run):
    """`num_pp` would not tell which answer belongs to which push."""
    for node, records in files(run).items():
        by_number = {}
        for row in records:
            by_number.setdefault((row["num_pp"], row["peer"]), []).append(row["operation"].split()[1][:4])
        for (number, _), what in by_number.items():
            if number == -15:
                assert set(what) == {"Push"}
            else:
                assert len(what) == 2
                assert len(set(what)) == 1
        if node.startswith("worker"):
            training = sorted(
                (number, what[0]) for (number, peer), what in by_number.items() if number > KEYS
            )
            kinds = [what for number, what in sorted(set(training))]
            assert all(one != other for one, other in pairwise(kinds))
            assert len(kinds) == 2 * KEYS * STEPS


def test_dispatch_numbers_are_in_the_order_of_launches(run):
    """`num_pp` would say that the first key was dispatched first, whatever the worker did."""
    trace = artefact.read(run[1] / "trace")
    for worker in range(WORKERS):
        key_of = {each.program: each.bucket for each in trace.run.programs if each.worker == worker}
        launched = launch_times(trace.records(worker))
        moments = {
            (key_of[program], instance): moment_ns
            for (program, instance), moment_ns in launched.items()
            if program in key_of
        }
        pushes = [
            row for row in files(run)[f"worker{worker}"] if row["operation"].endswith("Push_Send_Worker")
        ]
        by_number = {row["num_pp"]: row["key"] for row in pushes if row["num_pp"] > KEYS}
        dispatched = [key for _, key in sorted(by_number.items())]
        for step in range(STEPS):
            keys = dispatched[step * KEYS : (step + 1) * KEYS]
            assert keys == sorted(keys, key=lambda key: moments[key, step])
            assert keys != sorted(keys), "backward makes the last layers' gradients first"


def test_sizes_are_those_of_the_parameters(run):
    """Volumes would not be those of the training."""
    records = files(run)["worker1"]
    pushed = {
        (row["key"], row["peer"]): row["length"]
        for row in records
        if row["operation"].endswith("Push_Send_Worker")
    }
    halves = [size for (key, _), size in pushed.items() if key == SPLIT]
    assert halves == [1024 * 1024 * 4 // 2] * 2
    assert sum(pushed.values()) == 4 * (20 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 7 + 7)


def test_it_comes_back_from_parquet_byte_for_byte(run, tmp_path):
    """A trace kept in Parquet would not be the trace."""
    for path in (run[1] / "dlc").iterdir():
        catalogue.convert(catalogue.open_trace(path, strict=True), tmp_path / "t.parquet", "parquet")
        catalogue.convert(catalogue.open_trace(tmp_path / "t.parquet"), tmp_path / "back.txt", "dlc")
        assert filecmp.cmp(path, tmp_path / "back.txt", shallow=False)


def test_a_run_is_the_same_traffic_as_its_files_and_takes_other_workers(run):
    """What if there were more workers could be asked of files alone, or servers would not wait for all of them."""
    found = traffic_of([run[1] / "trace"])
    assert found == traffic_of([run[1] / "dlc" / f"{name}.txt" for name in files(run)])
    assert with_workers(found, WORKERS) == found
    more = with_workers(found, 4)
    moved = [message for message in more.messages if not message.is_moment]
    assert len(moved) == 2 * sum(not message.is_moment for message in found.messages)
    for message in moved:
        if message.iteration < 0 or message.source < 4:
            continue
        waited = [more.messages[at] for at in message.after]
        waited = [more.messages[at] for each in waited if each.is_moment for at in each.after] or waited
        sources = sorted(each.source for each in waited)
        assert sources in ([0, 1, 2, 3], [message.destination])
        # Only an update waits for others.
        assert len(sources) == 1 or run[0] == "0"
    # Every worker pulls half of the large parameter from a server: a link carries four of them.
    assert min(predict(more, star(4 + SERVERS, bit_per_s=1e8))) > 4 * (4 * 1024 * 1024 / 2) * 8 / 1e8


def test_every_question_is_answered(run):
    """Somebody who studies parameter servers would have to compute search, update and synchronisation by hand."""
    found = analyse(sorted((run[1] / "dlc").iterdir()), strict=True)
    assert found.not_applicable == found.notes == ()
    assert [phase.node for phase in found.phases] == [0, 1]
    assert [server.node for server in found.servers] == [2, 3]
    for server in found.servers:
        assert server.synchronous == (run[0] == "0")
        assert server.search
        assert server.update
        assert (server.synchronisation is not None) == (run[0] == "0")
    assert all(phase.iterations == STEPS for phase in found.phases)
    assert found.critical_paths
    assert found.stragglers
    assert found.lateness
    direct = analyse([run[1] / "trace"])
    assert (direct.records, direct.servers, direct.phases) == (found.records, found.servers, found.phases)
    assert re.fullmatch(r"wide\.weight", direct.sizes.layers[SPLIT].name)


def test_every_number_is_that_of_an_independent_script(run):
    """Times of a server that answers each push by itself, or of a key that two servers share, would not be what they are called."""
    found = assert_equal_numbers(sorted((run[1] / "dlc").iterdir()))
    assert len(found["keys"]) == KEYS + 1, "a key is split over two servers"
