"""PyTorch profiler traces: a real one in full, and waiting told apart from transfer where every rank's file is there."""

import copy
import gzip
import json

import pytest

from hocket.artefacts.trace import Kind
from hocket.errors import ArtefactError
from hocket.tools.formats import kineto
from tests.support.dlc_files import VECTORS

RESNET = VECTORS / "kineto-resnet50-ddp-2xa100.json.gz"
BUCKETS = [2_049_000, 7_875_584, 6_563_840, 6_637_568, 2_431_040]


def test_a_real_trace_is_read_in_full():
    """Collectives of a real run would be missed, or their sizes wrong."""
    (profile,), said = kineto.profiles(RESNET)
    assert (profile.rank, profile.world, [number for number, _, _ in profile.steps]) == (0, 2, [4, 5, 6])
    reduced = [each for each in profile.collectives if each.name == "allreduce"]
    for step in (4, 5, 6):
        assert [each.elements for each in reduced if each.step == step] == BUCKETS
    assert {each.bytes for each in reduced} == {4 * each for each in BUCKETS}
    assert {(each.group, each.ranks) for each in profile.collectives} == {("0", (0, 1))}
    assert len(profile.kernels) + len(profile.collectives) == 2700
    (sentence,) = said
    assert "1 ranks' files are not there" in sentence
    assert all(each.transfer_ns is None for each in profile.collectives)
    recording, _ = kineto.read(RESNET)
    records = recording.records(0)
    assert (len(records), (records["kind"] == Kind.INSTANCE).sum(), recording.run.world) == (2703, 21, 2)


@pytest.fixture
def small():
    """The communication of the real trace, as a tree."""
    tree = json.loads(gzip.decompress(RESNET.read_bytes()))
    tree["traceEvents"] = [
        each
        for each in tree["traceEvents"]
        if (each.get("cat") == "kernel" and each["name"].startswith("nccl"))
        or "ProfilerStep" in str(each.get("name"))
    ]
    return tree


def write(folder, *trees):
    folder.mkdir(exist_ok=True)
    for number, tree in enumerate(trees):
        (folder / f"{number}.json").write_text(json.dumps(tree))
    return folder


def test_waiting_is_told_apart_over_all_ranks(tmp_path, small):
    """A rank that waits for a straggler would look like a slow network."""
    other = copy.deepcopy(small)
    other["distributedInfo"]["rank"] = 1
    for event in other["traceEvents"]:
        if event["cat"] == "kernel":
            event["ts"] += 1000
            event["dur"] -= 5  # it comes 5 us late to every collective
    recording, said = kineto.read(write(tmp_path / "both", small, other))
    assert said == []
    waited = [
        (records["start_ns"] - records["ready_ns"])[records["kind"] == Kind.INSTANCE]
        for records in recording.ranks
    ]
    assert set(waited[0].tolist()) == {5000}
    assert set(waited[1].tolist()) == {0}


def test_events_that_last_less_than_nothing_are_reported(tmp_path, small):
    """A kernel of a damaged trace would be one that took no time, without a word."""
    kernels = [each for each in small["traceEvents"] if each["cat"] == "kernel"]
    kernels[0]["dur"] = -3
    _, said = kineto.read(write(tmp_path / "one", small))
    assert any("1 events last less than nothing" in sentence for sentence in said)


def test_missing_metadata_is_reported(tmp_path, small):
    """Sizes, groups and ranks would be guessed."""
    for event in small["traceEvents"]:
        if event["cat"] == "kernel":
            for name in ("dtype", "Process Group Ranks"):
                del event["args"][name]
    del small["distributedInfo"]
    recording, said = kineto.read(write(tmp_path / "bare", small))
    text = "\n".join(said)
    assert "no `distributedInfo`" in text
    assert "21 of 21 collectives carry no size" in text
    assert "21 of 21 collectives carry no process group" in text
    assert not recording.records(0)["bytes"].any()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"traceEvents": 3}', '{"traceEvents": [', "\x1f\x8b"])
def test_what_is_no_profiler_trace(tmp_path, text):
    """A damaged file would end in a traceback."""
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ArtefactError, match=r"x\.json"):
        kineto.read(path)


def test_senseless_events_are_passed_over(tmp_path):
    """One odd event would cost the trace."""
    odd = [
        3,
        {},
        {"ph": "X"},
        {"ph": "X", "ts": "a", "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "ncclX", "ts": 1, "dur": 2, "args": 7},
    ]
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"traceEvents": odd}))
    recording, _ = kineto.read(path)
    assert (recording.records(0)["kind"] == Kind.INSTANCE).sum() == 1


def test_every_whole_event_of_a_truncated_file(small, tmp_path):
    """The profile of a job that was killed could not be read at all."""
    whole = json.dumps(small).encode()
    path = tmp_path / "cut.json"
    path.write_bytes(whole)
    (all_of_it,), _ = kineto.profiles(path)
    begin = whole.index(b'"traceEvents"')
    seen = 0
    first = whole.index(b"}}", begin) + 2
    for end in range(first, len(whole), max(1, (len(whole) - begin) // 60)):
        path.write_bytes(whole[:end])
        (found,), said = kineto.profiles(path)
        events = len(found.collectives) + len(found.kernels) + len(found.steps)
        assert events >= seen
        assert f"is cut off or damaged after {events} events" in said[0]
        # Where the clock began stands behind the events.
        durations = {(number, end - start) for number, start, end in all_of_it.steps}
        assert {(number, end - start) for number, start, end in found.steps} <= durations
        seen = events
    assert seen == len(all_of_it.collectives) + len(all_of_it.kernels) + len(all_of_it.steps)
    for end in (0, 5, begin):
        path.write_bytes(whole[:end])
        with pytest.raises(ArtefactError, match="no JSON, or damaged"):
            kineto.profiles(path)


@pytest.mark.parametrize(
    "field", [{"ts": 1e305}, {"dur": -1e305}, {"name": f"ProfilerStep#{2**40}"}, {"args": {"stream": 2**70}}]
)
def test_numbers_that_no_record_holds(small, tmp_path, field):
    """A damaged number would end in a traceback."""
    for event in small["traceEvents"]:
        event.update(field)
    small["distributedInfo"] = {"rank": 10**12, "world_size": 10**12}
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(small))
    recording, _ = kineto.read(path)
    assert recording.run.world == 1
