"""Times of each key: captured jobs against an independent script, all-reduces against their launches."""

import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.artefacts.trace import FIELDS, Kind, Recording, RunInfo
from hocket.tools.analysis import keys
from hocket.tools.analysis.analyse import analyse_records
from hocket.tools.analysis.keys import KeyDurations
from tests.support.independent import assert_equal_numbers

CAPTURED = Path(__file__).parent / "captured"
KEYS = {"lenet5": 8, "resnet50": 157, "vgg19": 38}


@pytest.mark.parametrize("model", KEYS)
def test_captured_jobs_as_an_independent_script_has_them(model, tmp_path):
    """A figure of the report would not be what the format's definition says it is."""
    with tarfile.open(CAPTURED / f"{model}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = assert_equal_numbers(sorted(tmp_path.glob("*.txt")))
    assert len(found["keys"]) == KEYS[model]
    for each in found["keys"]:
        for name in ("search", "synchronisation", "update"):
            values = [at["us"] for at in each[name]["cdf_us"]]
            assert values == sorted(values)
            assert each[name]["least_us"] <= values[0] <= each[name]["median_us"] in values
            assert values[-1] == each[name]["longest_us"]


moments_ns = st.integers(0, 10**9)


@given(
    launches=st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.tuples(moments_ns, moments_ns), min_size=3, max_size=3)),
        min_size=1,
        max_size=12,
    ),
    missing=st.integers(0, 11),
)
def test_buckets_of_an_all_reduce(launches, missing):
    """A bucket would wait for a rank that had launched before, or its exchange begin before the last rank had."""
    ranks, expected = [[], [], []], {}
    for instance, (program, moments) in enumerate(launches):
        whole = instance != missing
        ready = [ready_ns for ready_ns, _ in moments]
        end = [ready_ns + long_ns for ready_ns, long_ns in moments]
        for rank in range(3 if whole else 2):
            row = np.zeros((), list(FIELDS))
            row["kind"], row["program"], row["instance"] = Kind.INSTANCE, program, instance
            row["ready_ns"] = row["start_ns"] = ready[rank]
            row["end_ns"] = end[rank]
            ranks[rank].append(row)
        if whole:
            own = expected.setdefault(program, ([], []))
            own[0].append((max(ready) - min(ready)) / 1000)
            own[1].append((max(end) - max(ready)) / 1000)
    records = tuple(np.array(own, list(FIELDS)) for own in ranks)
    found = analyse_records(Recording(RunInfo(world=3, hosts=("a", "b", "c")), records)).keys
    assert [each.key for each in found] == sorted(expected)
    for each in found:
        assert (each.node, each.search, each.update) == (None, None, None)
        for summary, values in zip((each.synchronisation, each.exchange), expected[each.key], strict=True):
            assert summary.count == len(values)
            assert summary.mean_us == pytest.approx(np.mean(values))
            assert (summary.least_us, summary.longest_us) == (min(values), max(values))


def test_keys_beyond_the_limit_are_counted(monkeypatch):
    """A damaged trace with a key a record would take all memory, or the rest be left out in silence."""
    monkeypatch.setattr(keys, "KEYS_MAX", 2)
    times = KeyDurations(("search",))
    times.add_ns("search", np.array([7, 1, 9, 1, 8], np.int32), np.array([1000, 2000, 3000, 4000, 5000]))
    times.add_ns("search", np.array([7, 9], np.int32), np.array([3000, 1]))
    assert times.left_out == 2
    found = dict(times.summaries())
    assert list(found) == [1, 7]
    assert (found[1]["search"].mean_us, found[7]["search"].mean_us) == (3.0, 2.0)
