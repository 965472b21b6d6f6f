"""The page and its numbers, from synthetic traces: what it says, what it escapes, and how large it may be."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hocket.artefacts.change import Change
from hocket.artefacts.goodput import Goodput, Lost
from hocket.artefacts.members_change import MembersChange
from hocket.artefacts.trace import append_change, append_members_change
from hocket.tools.analysis.analyse import analyse
from hocket.tools.report import build, numbers, quantity, timeline
from hocket.tools.report.learning import LINE_POINTS_MAX, decimated
from hocket.tools.report.markup import data, tag
from hocket.tools.report.material import load
from hocket.tools.report.page import PAGE_BYTES_MAX
from hocket.tools.report.quantity import NARROW_SPACE, TIMES
from hocket.tools.report.spans import SPANS_MAX
from tests.support.synthetic import RECORD, SyntheticRun, run_info, write_trace

SMALL = SyntheticRun(steps=6)
HOSTILE = '</script><img src=x onerror=a()>"'


class Page(HTMLParser):
    """Elements, their attributes and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.islands: dict[str, Any] = {}
        self.inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inside.append(dict(attrs).get("id") or tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.text += data
        elif self.inside[-1].endswith("-data"):
            self.islands[self.inside[-1]] = json.loads(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def page_of(directory: Path) -> Page:
    return Page(build(directory).read_text())


def rewrite_run(directory: Path, **changes: Any) -> None:
    path = directory / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_hosts_of_one_rack_are_together_in_the_map_of_the_network(tmp_path: Path) -> None:
    """Racks would not be seen in the heat map of a cluster whose hosts are listed in turns."""
    text = build(write_trace(tmp_path, SMALL)).read_text()
    first_map = text[text.index("from \\ to") :]
    racks = re.findall(r"class=\"rack r\d\">(\w+)<", first_map[: first_map.index("</tr>")])
    assert racks == ["north", "north", "south", "south"]


def test_hosts_whose_racks_are_not_known_are_together_when_they_are_near(tmp_path: Path) -> None:
    """A cloud's hosts, which have no racks by name, would be shown as noise."""
    directory = write_trace(tmp_path, SMALL)
    near = [[0.0 if a == b else 1e-4 if a % 2 == b % 2 else 9e-4 for b in range(4)] for a in range(4)]
    run = json.loads((directory / "run.json").read_text())
    cluster = {**run["cluster"], "racks": [], "latency_s": near}
    cluster["hosts"] = [{**host, "rack": "rack0"} for host in cluster["hosts"]]
    rewrite_run(directory, cluster=cluster)
    text = build(directory).read_text()
    first_map = text[text.index("from \\ to") :]
    groups = re.findall(r"class=\"rack r\d\">([\w ]+)<", first_map[: first_map.index("</tr>")])
    assert groups == ["group 1", "group 1", "group 2", "group 2"]


def test_page_shows_what_the_job_changed(tmp_path: Path) -> None:
    """A job that drove itself would not show when it changed its plan, why, and what that gained."""
    directory = write_trace(tmp_path, SMALL)
    before = Change(what="adopted", step=13, epoch=2, label="two-level", why=HOSTILE, predicted_s=1.2)
    after = Change(
        what="kept", step=19, epoch=2, label="two-level", why="", predicted_s=1.2, before_s=3.6, after_s=1.2
    )
    for each in (before, after):
        append_change(directory, each)
    page = page_of(directory)
    assert f"Since step 19, two-level has proved itself: 1.20{NARROW_SPACE}s a step" in page.text
    assert f"(3.0{TIMES})" in page.text
    assert HOSTILE in page.text
    rows = numbers(directory)["changes"]
    assert [(row["step"], row["what"], row["after_s"]) for row in rows] == [
        (13, "adopted", None),
        (19, "kept", 1.2),
    ]


def test_page_shows_who_was_lost_and_who_came(tmp_path: Path) -> None:
    """Somebody who trains on machines that come and go would not see what the changes cost, or why training stood still."""
    directory = write_trace(tmp_path, SMALL)
    assert "members" not in numbers(directory)
    lost = MembersChange(
        what="lost",
        who=HOSTILE,
        epoch=2,
        ranks=3,
        step=17,
        noticed="a rank was not heard for 5 s",
        decided_s=0.009,
        stopped_s=0.038,
        again=True,
    )
    for each in (lost, MembersChange(what="joined", who="rank 4", epoch=3, ranks=4, stopped_s=0.5)):
        append_members_change(directory, each)
    page = page_of(directory)
    assert (
        f"Ranks were lost once, joined once. Training stood still for 538{NARROW_SPACE}ms in all."
        in page.text
    )
    assert HOSTILE[:10] in page.text
    assert (
        "a rank was not heard for 5 s; the others went on from step 17; one step was reduced again"
        in page.text
    )
    rows = numbers(directory)["members"]
    assert [(row["what"], row["step"], row["decided_s"]) for row in rows] == [
        ("lost", 17, 0.009),
        ("joined", None, None),
    ]


def test_page_shows_how_much_of_the_work_counted(tmp_path: Path) -> None:
    """Somebody would not see whether to mend the network, the start of processes or the length of a step."""
    directory = write_trace(tmp_path, SMALL)
    lost = Lost(standing_still=40.0, done_again=10.0, joining=50.0)
    until_now = Goodput(
        unit="samples",
        committed=800,
        undisturbed=850.0,
        all_along=850.0,
        steps=100,
        time_s=50.0,
        ranks_s=200.0,
        lost=Lost(standing_still=50.0),
    )
    at_the_end = structs.replace(
        until_now, committed=1900, undisturbed=2000.0, all_along=3800.0, time_s=90.0, lost=lost
    )
    change = MembersChange(what="lost", who="rank 1", epoch=2, ranks=3, goodput=until_now)
    for each in (change, structs.replace(change, what="ended", goodput=at_the_end)):
        append_members_change(directory, each)
    page = page_of(directory)
    assert f"Goodput was 95.0{NARROW_SPACE}%: 1900 samples stand, of 2000" in page.text
    assert f"the job made 50.0{NARROW_SPACE}% of that" in page.text
    assert "Standing still after losses" in page.text
    assert "Waiting for enough ranks" not in page.text
    found = numbers(directory)
    assert [row["what"] for row in found["members"]] == ["lost"]
    assert (found["goodput"]["share"], found["goodput"]["lost"]["joining"]) == (0.95, 50.0)


def test_page_shows_what_a_search_tried(tmp_path: Path) -> None:
    """Somebody who let a job search would not see what it tried, what came of it, and why it ended."""
    directory = write_trace(tmp_path, SMALL)
    tried = [
        Change(what="searching", step=10, epoch=1, label="ring", why="", before_s=2.0),
        Change(what="adopted", step=13, epoch=2, label="two-level", why="", predicted_s=1.5, before_s=2.0),
        Change(
            what="kept", step=20, epoch=2, label="two-level", why="", before_s=2.0, after_s=1.6, error_s=0.1
        ),
        # The machine has become half as fast.
        Change(what="adopted", step=25, epoch=3, label="direct", why="", predicted_s=1.0, before_s=3.2),
        Change(
            what="left", step=31, epoch=4, label="two-level", why="", before_s=3.2, after_s=3.6, error_s=0.1
        ),
        Change(what="searched", step=33, epoch=4, label="two-level", why="its 20 minutes are over"),
    ]
    for each in tried:
        append_change(directory, each)
    page = page_of(directory)
    assert f"two-level is the fastest: 1.60{NARROW_SPACE}s a step, 2.00{NARROW_SPACE}s before" in page.text
    assert "It ended at step 33: its 20 minutes are over." in page.text
    (search,) = numbers(directory)["search"]
    assert [(each["label"], each["kept"]) for each in search["trials"]] == [
        ("two-level", True),
        ("direct", False),
    ]
    assert [each["measured_s"] for each in search["trials"]] == pytest.approx([1.6, 1.8])
    assert [each["best_s"] for each in search["trials"]] == pytest.approx([1.6, 1.6])
    assert search["hits"] == 1.0


def test_page_says_what_was_gained(tmp_path: Path) -> None:
    """A reader would not see the gain, or a question of the page would be missing."""
    page = page_of(write_trace(tmp_path, SMALL))
    assert f"6.1{TIMES} the steps per second of PyTorch DDP" in page.text
    sections = [attributes["id"] for name, attributes in page.elements if name == "section"]
    assert sections == [
        "comparison", "learning", "breakdown", "overlap", "iterations", "keys", "timeline", "network", "plan", "prediction",
        "traffic", "usage", "facts",
    ]  # fmt: skip


def test_page_loads_nothing(tmp_path: Path) -> None:
    """The page would be broken without a network, or tell an address that somebody reads it."""
    text = build(write_trace(tmp_path, SMALL)).read_text()
    for name, attributes in Page(text).elements:
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#"), name
        assert name not in ("link", "iframe", "object", "embed", "img")
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(", text)
    assert "default-src 'none'" in text


def test_tables_need_no_script(tmp_path: Path) -> None:
    """Without JavaScript the numbers would be lost."""
    page = page_of(write_trace(tmp_path, SMALL))
    assert page.count("table") >= 8
    for value in ("3.73", "39.5", "941", "620", "1.22", "19.7"):
        assert value in page.text


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """A host name, label or script argument could run code in the reader's browser."""
    write_trace(tmp_path, SMALL)
    text = (tmp_path / "run.json").read_text()
    for name in (
        *SMALL.hosts,
        "north",
        "south",
        "contiguous, ring",
        "block0.weight",
        "bucket 1",
        "The trunk",
        "train.py",
    ):
        text = text.replace(name, json.dumps(name + HOSTILE)[1:-1])
    (tmp_path / "run.json").write_text(text)
    compared = (tmp_path / "comparison.json").read_text()
    for name in ("PyTorch DDP", "transformer", "bits per byte", "4 hosts"):
        compared = compared.replace(name, json.dumps(name + HOSTILE)[1:-1])
    (tmp_path / "comparison.json").write_text(compared)
    page = page_of(tmp_path)
    assert page.count("script") == 3, "the page's own script and two data islands"
    assert page.count("img") == 0
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert f"node1{HOSTILE}" in page.text
    assert any(HOSTILE[:20] in one["label"] for one in page.islands["learning-data"])


@given(st.text())
def test_any_text_survives_markup(text: str) -> None:
    """Some text would be shown wrongly or break out of its element, attribute or data island."""
    text = text.replace("\r", "").replace("\0", "")
    page = Page(tag("p", text[:1000], title=text[:1000]) + data("some-data", text))
    assert [name for name, _ in page.elements] == ["p", "script"]
    assert page.text == text[:1000]
    assert page.elements[0][1]["title"] == text[:1000]
    assert page.islands["some-data"] == text


def test_long_trace_gives_small_page(tmp_path: Path) -> None:
    """The report of a long or wide run could not be opened or attached anywhere."""
    wide = SyntheticRun(
        steps=8,
        racks=("a", "b") * 4,
        order=(0, 2, 4, 6, 1, 3, 5, 7),
        bucket_bytes=(65_536,) * 60,
        trunk_byte_per_s=1e8,
    )
    write_trace(tmp_path, wide)
    comparison = json.loads((tmp_path / "comparison.json").read_text())
    for strategy in comparison["strategies"]:
        strategy["losses"] = [2 + 1 / (i + 1) for i in range(100_000)]
        strategy["times_s"] = [i / 7 for i in range(100_000)]
        strategy["label"] *= 5_000
    (tmp_path / "comparison.json").write_text(json.dumps(comparison))
    path = build(tmp_path)
    assert path.stat().st_size <= PAGE_BYTES_MAX
    island = Page(path.read_text()).islands["timeline-data"]
    assert 1_000 < sum(len(rank["spans"]) for rank in island["ranks"]) <= SPANS_MAX


@pytest.mark.parametrize("spans_max", [1, 10, 40, 200, 1_000])
def test_timeline_keeps_its_limit(tmp_path: Path, spans_max: int) -> None:
    """A wide step would overflow the page's limit through the timeline, or some bars be missing."""
    material = load(write_trace(tmp_path, SMALL))
    island = Page(timeline.section(material, spans_max).body).islands.get("timeline-data")
    if spans_max < 10:
        assert island is None
        return
    assert sum(len(rank["spans"]) for rank in island["ranks"]) <= spans_max
    for rank in island["ranks"]:
        buckets = [span for span in rank["spans"] if span[1] == 4]
        assert len(buckets) == len(SMALL.bucket_bytes) * len(island["steps"])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3 * LINE_POINTS_MAX))
def test_decimation_keeps_extremes(values: list[float]) -> None:
    """A spike in the loss would vanish from the chart, or a long run's line would be heavy."""
    points = [(step, value, None) for step, value in enumerate(values)]
    kept = decimated(points)
    assert len(kept) <= max(LINE_POINTS_MAX, 1)
    assert [p[0] for p in kept] == sorted({p[0] for p in kept})
    assert max(p[1] for p in kept) == max(values)
    assert min(p[1] for p in kept) == min(values)


def test_ranks_share_one_clock(tmp_path: Path) -> None:
    """Ranks would be drawn against each other by the offset of their clocks."""
    page = page_of(write_trace(tmp_path, SMALL))
    forwards = [[s[6] for s in rank["spans"] if s[1] == 0] for rank in page.islands["timeline-data"]["ranks"]]
    assert len(forwards) == SMALL.world
    for starts in zip(*forwards, strict=True):
        assert max(starts) - min(starts) < 1.0, "the generator starts every rank's forward at the same moment"


def test_concurrent_buckets_have_own_lanes(tmp_path: Path) -> None:
    """One bucket's bar would hide another's that was on the wire at the same time."""
    page = page_of(write_trace(tmp_path, SMALL))
    for rank in page.islands["timeline-data"]["ranks"]:
        bars = [span for span in rank["spans"] if span[1] == 4]
        assert len({span[0] for span in bars}) > 1
        for lane in {span[0] for span in bars}:
            inside = sorted((span[6], span[7]) for span in bars if span[0] == lane)
            assert all(before[1] <= after[0] for before, after in pairwise(inside))


def test_traffic_counts_every_send(tmp_path: Path) -> None:
    """The bytes of a rank pair, or the share that crosses the trunk, would be wrong."""
    traffic = numbers(write_trace(tmp_path, SMALL))["traffic"]
    shares = sum(size // 4 for size in SMALL.bucket_bytes)
    sent = {(pair["source"], pair["destination"]): pair["bytes_per_step"] for pair in traffic["pairs"]}
    assert set(sent) == {(0, 2), (2, 1), (1, 3), (3, 0)}, "the ring's links, each one way"
    assert sent[0, 2] == pytest.approx(6 * shares)
    assert sent[2, 1] == pytest.approx(3 * shares, rel=1e-5), "f16 across racks"
    assert traffic["between_racks_bytes_per_step"] == pytest.approx(sent[2, 1] + sent[3, 0])


def test_start_up_is_no_traffic_of_steps(tmp_path: Path) -> None:
    """The parameters that are sent once, before the first step, would be counted in each step."""
    path = write_trace(tmp_path, SMALL) / "rank-0.hktrace"
    before = numbers(tmp_path)["traffic"]
    path.write_bytes(path.read_bytes() + RECORD.pack(1, 1, 2, 10**9, 99, 0, 0, 1, 5, 0, 0, 0))
    assert numbers(tmp_path)["traffic"] == before


def test_choice_without_candidates_is_compared(tmp_path: Path) -> None:
    """A plan that carries its prediction alone would never be held against the run."""
    write_trace(tmp_path, SMALL, comparison=False)
    rewrite_run(tmp_path, plan={**run_info(SMALL)["plan"], "candidates": []})
    (row,) = numbers(tmp_path)["prediction"]
    assert row["chosen"]
    assert row["measured_step_s"] == pytest.approx(0.68, rel=0.05)


def test_step_is_the_sum_of_its_phases(tmp_path: Path) -> None:
    """The share of the step spent waiting would be wrong."""
    for row in numbers(write_trace(tmp_path, SMALL))["breakdown"]["ranks"]:
        parts = sum(row[f"{name}_s"] for name in ("loading", "forward", "backward", "wait", "optimizer"))
        assert row["for_ranks_s"] + row["for_network_s"] == pytest.approx(row["wait_s"])
        assert row["steps"] == SMALL.steps
        assert parts == pytest.approx(row["step_s"], rel=0.05)
        assert row["wait_share"] == pytest.approx(row["wait_s"] / row["step_s"])


def test_prediction_errors(tmp_path: Path) -> None:
    """Predicted against measured time would be compared the wrong way round."""
    found = {row["label"]: row for row in numbers(write_trace(tmp_path, SMALL))["prediction"]}
    assert found["contiguous, ring, none, 3 MiB"]["error"] == pytest.approx(1.12 / 1.16 - 1)
    assert [label for label, row in found.items() if row["chosen"]] == [
        "contiguous, ring, f16 across racks, 3 MiB"
    ]


def test_run_without_comparison(tmp_path: Path) -> None:
    """The report of an ordinary run would need a comparison that nobody made."""
    page = page_of(write_trace(tmp_path, SMALL, comparison=False))
    assert "ms a step" in page.text
    assert "How do the strategies compare?" not in page.text
    assert [one["label"] for one in page.islands["learning-data"]] == ["This run, mean over ranks"]


def test_bare_run(tmp_path: Path) -> None:
    """A run without plan, cluster, losses or even records could not be reported at all."""
    bare = {key: run_info(SMALL)[key] for key in ("version", "world", "hosts", "script", "started_at")}
    (tmp_path / "run.json").write_text(json.dumps(bare))
    page = page_of(tmp_path)
    assert "No records of rank 0, 1, 2, 3" in page.text
    for line in (
        "No losses were logged",
        "No steps were recorded",
        "was not measured",
        "carried no plan",
        "No sends",
    ):
        assert line in page.text


def test_more_hosts_than_a_matrix_shows(tmp_path: Path) -> None:
    """A large cluster's matrices would make the page unreadable."""
    many = 40
    shape = replace(
        SMALL, steps=2, racks=("a", "b") * (many // 2), order=tuple(range(many)), bucket_bytes=(4_096,)
    )
    page = page_of(write_trace(tmp_path, shape))
    assert "the first 24 of 40" in page.text
    assert "16 of 40 ranks are shown" in page.text


def test_times_of_keys_are_those_of_the_analysis(tmp_path: Path) -> None:
    """A picture would show other times than `hocket trace analyse`, or leave buckets out in silence."""
    write_trace(tmp_path, SyntheticRun(steps=6, bucket_bytes=(50_000,) * 20))
    found = analyse([tmp_path]).keys
    assert numbers(tmp_path)["keys"] == msgspec.to_builtins(found)
    assert len(found) == 20
    page = page_of(tmp_path)
    longest = sorted(found, key=lambda each: -each.exchange.mean_us if each.exchange else 0.0)
    for each in longest[:16]:
        assert each.exchange is not None
        assert quantity.seconds(each.exchange.mean_us / 1e6) in page.text
    assert "to the end on all ranks (the 16 longest of 20 keys)" in page.text
