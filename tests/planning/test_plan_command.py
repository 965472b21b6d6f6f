"""`hocket plan` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from hocket.artefacts import files as artefacts
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.plan import AllReduce, Plan, Rule
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Profile, RankStep
from hocket.artefacts.promise import ROUNDED
from hocket.cli.plan import command
from hocket.errors import ArtefactError, UsageError
from hocket.planning import search
from tests.planning.planner_inputs import alternating, model


@pytest.fixture
def files(tmp_path: Path) -> Path:
    artefacts.write(tmp_path / "cluster.toml", alternating())
    artefacts.write(tmp_path / "profile.json", model())
    return tmp_path


def call(files: Path, *arguments: str) -> Result:
    profile = ["--profile", str(files / "profile.json")]
    return CliRunner().invoke(command, ["--cluster", str(files / "cluster.toml"), *profile, *arguments])


def test_writes_the_plan_and_shows_what_it_was_chosen_from(files: Path) -> None:
    """Broken: the file would not be the plan that was shown, or the choice would go unexplained."""
    result = call(files, "-o", str(files / "plan.json"))
    assert result.exit_code == 0, result.output
    plan = msgspec.json.decode((files / "plan.json").read_bytes(), type=Plan)
    check(plan, model().gradients)
    assert plan.world == 4
    assert plan.reason in result.output
    assert {each.label for each in plan.evidence.candidates} >= {plan.label}
    for candidate in plan.evidence.candidates:
        assert candidate.label in result.output


def test_the_plan_says_how_it_came_about(files: Path) -> None:
    """Broken: nobody could tell how good a plan is, what it was made from, or what it would be on another cluster."""
    call(files, "--promise", "rounded", "-o", str(files / "plan.json"))
    plan = artefacts.read(files / "plan.json", Plan)
    assert plan.promise == "rounded"
    assert set(plan.evidence.digests) == {"cluster", "profile"}
    assert plan.evidence.gap is not None
    assert 0 <= plan.evidence.gap < 0.05
    for bucket in plan.buckets:
        assert bucket.rule == Rule(order="rack by rack", groups="racks", links="slow links")
    assert plan.buckets == search.plan(alternating(), model(), 4, promise=ROUNDED).buckets


def test_json_is_the_plan_alone(files: Path) -> None:
    """Broken: scripts could not read the output."""
    result = call(files, "--json", "-n", "2")
    plan = msgspec.json.decode(result.stdout, type=Plan)
    assert plan.world == 2
    assert plan.promise == "exact"
    assert plan.buckets[0].codec == "none"


def test_a_variable_is_explained_by_what_else_it_could_do(files: Path) -> None:
    """Broken: nobody could see why a variable travels as it does."""
    said = json.loads(call(files, "--json", "--explain", "p3").stdout)
    plan = msgspec.convert(said["plan"], Plan)
    options = said["options"]
    assert [each["chosen"] for each in options].count(True) == 1
    assert options[0]["step_s"] >= plan.predicted_step_s - 1e-6  # no change of one bucket is better
    assert next(each for each in options if each["chosen"])["step_s"] == pytest.approx(plan.predicted_step_s)
    assert {each["label"] for each in options} == {
        f"{order} {way}" for order in ("given", "contiguous") for way in ("ring", "two-level")
    }
    assert "the plan has no variable `p33`\nhint: p3" in str(call(files, "--explain", "p33").exception)


def test_a_builder_makes_its_own_plan(files: Path) -> None:
    """Broken: the planner could not be compared with the builders of other systems."""
    best = msgspec.json.decode(call(files, "--json").stdout, type=Plan)
    for name in ("greedy", "parallax", "ring"):
        plan = msgspec.json.decode(call(files, "--json", "--builder", name).stdout, type=Plan)
        check(plan, model().gradients)
        assert plan.predicted_step_s >= best.predicted_step_s
        routes = {bucket.route.algorithm for bucket in plan.buckets if isinstance(bucket.route, AllReduce)}
        assert routes == {"ring"} or name == "greedy"
    assert "builder `horovod` makes no plan for this job" in str(
        call(files, "--builder", "horovod").exception
    )


def test_it_is_said_what_links_carry_and_what_rates_that_are_off_cost(files: Path) -> None:
    """Broken: nobody could tell what a plan gains, or whether it depends on a measurement that may be wrong."""
    plan = msgspec.json.decode(call(files, "--json").stdout, type=Plan)
    assert "The simplest candidate, given ring 1 MiB, takes 848.2 ms: trunk of rack0" in plan.reason
    found = {(each.links, each.factor): each for each in plan.evidence.sensitivity}
    assert set(found) == {(links, factor) for links in ("links of hosts", "trunks") for factor in (0.8, 1.2)}
    assert found["trunks", 0.8].step_s > plan.predicted_step_s > found["trunks", 1.2].step_s
    assert all(each.best_step_s <= each.step_s for each in found.values())
    assert "With rates 20% off it takes up to" in plan.reason


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("cluster.toml", None, "cannot be read: No such file"),
        ("cluster.toml", b"hosts = [", "damaged or truncated"),
        ("cluster.toml", b"\xff\xfe", "damaged or truncated"),
        ("cluster.toml", b"version = 2\nhosts = []", "has version 2: this Hocket reads up to 1"),
        ("cluster.toml", b'hosts = [{name = "a"}]', "is not a cluster: Object missing required field"),
        ("cluster.toml", b"hosts = []\nhots = 1", "is not a cluster: Object contains unknown field `hots`"),
        ("profile.json", b'{"model": "m', "damaged or truncated"),
        ("profile.json", b"[]", "is not a profile"),
    ],
)
def test_files_that_lie_are_refused_by_name(files: Path, name: str, content: bytes | None, said: str) -> None:
    """Broken: a damaged file would end in a traceback, or in a plan for something else."""
    (files / name).unlink()
    if content is not None:
        (files / name).write_bytes(content)
    error = call(files).exception
    assert isinstance(error, ArtefactError)
    assert str(files / name) in str(error)
    assert said in str(error)


def test_every_artefact_reads_back_equal(tmp_path: Path) -> None:
    """Broken: what one stage writes would not be what the next one reads."""
    cluster, profile = alternating(), model()
    unlimited = msgspec.structs.replace(cluster, racks=(Rack(name="rack0"),), latency_s=((1e-4,) * 4,) * 4)
    plan = search.plan(cluster, profile, 4)
    for kind, artefact in ((Cluster, unlimited), (Profile, profile), (Plan, plan)):
        artefacts.write(tmp_path / "file", artefact)
        assert artefacts.read(tmp_path / "file", kind) == artefact
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_output_that_cannot_be_written_is_said(files: Path) -> None:
    """Broken: a full or read-only disk would lose the plan silently."""
    done = call(files, "-o", str(files / "no" / "plan.json"))
    assert done.exit_code == 2
    assert "cannot be written: there is no folder" in done.output


def test_late_gradients_at_a_rate_that_is_too_high_are_refused(files: Path) -> None:
    """Broken: `hocket plan` would write plans with which training diverges, or keep to itself why it did not."""
    allowed = ["--promise", "uncorrected,uncorrected=1"]
    fast = [*allowed, "--learning", "sgd,rate=0.1,momentum=0.9,curvature=3"]
    refused = call(files, *fast)
    assert refused.exit_code == 0, refused.output
    assert "exceeded" in refused.output
    assert "The guard lets no schedule pass" in refused.output
    slow = call(files, *allowed, "--learning", "sgd,rate=0.1,momentum=0.9,curvature=0.1")
    assert "kept, closest to its limit" in slow.output
    unguarded = call(files, *fast, "--guard", "off", "--json")
    plan = msgspec.json.decode(unguarded.output, type=Plan)
    assert plan.schedule.delay_max == 1
    assert plan.evidence.checks == ()
    wrong = call(files, *allowed, "--learning", "sgd")
    assert isinstance(wrong.exception, UsageError)
    assert "rate=… is missing" in str(wrong.exception)


@pytest.mark.parametrize(
    ("learning", "words", "efficient"),
    [
        ("sgd,rate=0.001,momentum=0,curvature=0.1", "chosen, efficiency unknown, counted as 1", None),
        ("sgd,rate=0.001,momentum=0,curvature=0.1,noise_scale=100000", "chosen, efficiency 1.00", 1.0),
    ],
)
def test_an_unknown_efficiency_is_said(
    files: Path, learning: str, words: str, efficient: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: a plan would look as good as one that is known to learn as fast."""
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ["--promise", "merged,merge=2", "--learning", learning]
    assert words in call(files, *arguments).output
    evidence = json.loads(call(files, *arguments, "--json").stdout)["evidence"]
    assert evidence["efficiency"] == (None if efficient is None else pytest.approx(efficient, abs=1e-3))
    synchronous = json.loads(call(files, "--json").stdout)["evidence"]
    assert synchronous["efficiency"] == 1.0


def test_a_rank_that_computes_longer(tmp_path: Path) -> None:
    """Broken: nobody would hear that batches can be shared by speed; or the others would idle until the slow rank comes."""
    steps_s = [0.07, 0.07, 0.07, 0.21]
    longer = sum(steps_s) / 4 / 0.07
    plain = model(gradients=4, elements=1_000_000)
    profile = msgspec.structs.replace(
        plain,
        forward_s=plain.forward_s * longer,
        backward_s=plain.backward_s * longer,
        step_s=plain.step_s * longer,
        gradients=tuple(
            msgspec.structs.replace(each, ready_s=each.ready_s * longer) for each in plain.gradients
        ),
        ranks=tuple(RankStep(step_s=each, batch=32) for each in steps_s),
    )
    hosts = tuple(Host(name=f"h{rank}", bandwidth_bit_per_s=1e9) for rank in range(4))
    artefacts.write(tmp_path / "cluster.toml", Cluster(hosts=hosts))
    artefacts.write(tmp_path / "profile.json", profile)
    result = call(tmp_path, "-o", str(tmp_path / "plan.json"))
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "shares=[1, 1, 1, 0.33]), with batches of 39, 39, 38, 12 samples" in text
    assert "Rank 3 ends its backward 120.0 ms after all others" in text
    plan = artefacts.read(tmp_path / "plan.json", Plan)
    check(plan, profile.gradients)
    assert {each.route.algorithm for each in plan.buckets if isinstance(each.route, AllReduce)} == {
        "collect_spread"
    }
    simulated = {each.label: each.simulated_step_s for each in plan.evidence.candidates}
    assert simulated[plan.label] == min(each for each in simulated.values() if each is not None)
