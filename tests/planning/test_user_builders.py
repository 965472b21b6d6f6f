"""Builders that users write: those of docs/strategies.md, as its reader copies them, make plans like all others."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hocket.artefacts import files
from hocket.artefacts.plan import AllReduce, Gathered, Owned, Plan, Traced
from hocket.artefacts.plan_check import check
from hocket.artefacts.promise import EXACT, Promise
from hocket.cli.plan import command
from hocket.cli.run import command as run
from hocket.errors import UsageError
from hocket.planning import Builder, built_by, plan
from hocket.planning.asked import asked_for
from hocket.planning.built import built
from hocket.planning.choice import choices
from hocket.planning.compile import unverified
from hocket.planning.question import question_of
from hocket.planning.search import considered
from hocket.planning.starts import starts
from hocket.planning.traced import topology_of, traffic
from hocket.planning.trials import Trials
from hocket.reference.ops import STORED
from tests.planning import strategies_page as page
from tests.planning.planner_inputs import alternating, model
from tests.planning.test_never_worse import CASES
from tests.support.engines import Job

LOSSY = Promise("lossy")


def call(folder: Path, *arguments: str) -> Result:
    files.write(folder / "cluster.toml", page.cluster())
    files.write(folder / "profile.json", page.profile())
    given = ["--cluster", str(folder / "cluster.toml"), "--profile", str(folder / "profile.json"), "-n", "4"]
    return CliRunner().invoke(command, [*given, *arguments], catch_exceptions=False)


def test_the_page_has_the_builders_that_it_promises(tmp_path: Path) -> None:
    """Broken: the page would be tested without its examples."""
    found = page.copied(tmp_path)
    assert list(found) == list(page.BUILDERS)
    for name, path in found.items():
        classes = [each.name for each in ast.parse(path.read_text()).body if isinstance(each, ast.ClassDef)]
        assert classes == [page.BUILDERS[name]]


@pytest.mark.parametrize("name", page.BUILDERS)
def test_a_builder_of_the_page_is_compared_with_all_plans(name: str, tmp_path: Path) -> None:
    """Broken: a copied example would not run, or nobody could see what its plan is worth."""
    page.copied(tmp_path)
    promise = ["--promise", "lossy"] if name in page.LOSSY else []
    wanted = f"{tmp_path / name}:{page.BUILDERS[name]}"
    result = call(tmp_path, *promise, "--builder", wanted, "-o", str(tmp_path / "plan.json"))
    assert result.exit_code == 0, result.output
    made = files.read(tmp_path / "plan.json", Plan)
    check(made, page.profile().gradients)
    assert made.label == page.BUILDERS[name]
    assert made.predicted_step_s > 0
    candidates = {each.label: each.predicted_step_s for each in made.evidence.candidates}
    assert candidates[made.label] == made.predicted_step_s
    assert len(candidates) > 8
    assert min(candidates.values()) <= made.predicted_step_s
    assert set(page.copied(tmp_path)) >= {"mine.py"}


def test_kinds_of_variables_have_their_routes(tmp_path: Path) -> None:
    """Broken: the page would promise routes that its examples do not have."""
    found = page.copied(tmp_path)
    made = built_by(f"{found['kinds.py']}:ByKind", page.cluster(), page.profile(), 4)
    routes = {name: bucket.route for bucket in made.buckets for name in bucket.variables}
    assert isinstance(routes["words.weight"], Gathered)
    assert isinstance(routes["0.bias"], Owned)
    assert routes["0.weight"] == AllReduce(algorithm="two_level", sizes=(2, 2))
    two_level = next(bucket for bucket in made.buckets if "0.weight" in bucket.variables)
    assert (two_level.order, two_level.rule.order) == ((0, 2, 1, 3), "rack by rack")
    large = f"{found['large.py']}:Int8ForLarge,large_bytes=100000,block=256"
    made = built_by(large, page.cluster(), page.profile(), 4, promise=LOSSY)
    routes = {name: bucket.route for bucket in made.buckets for name in bucket.variables}
    assert routes["0.weight"] == Traced(policy="int8", parameters={"block": 256})
    assert isinstance(routes["0.bias"], AllReduce)
    assert isinstance(routes["words.weight"], Gathered)  # left out
    assert made.promise == "lossy"


def test_settings_come_from_the_command_line(tmp_path: Path) -> None:
    """Broken: a setting would have no effect."""
    path = page.copied(tmp_path)["mine.py"]
    counts = {}
    for chunk in (1, 4):
        result = call(tmp_path, "--json", "--builder", f"{path}:Chunked,chunk={chunk}")
        made = json.loads(result.stdout)
        assert made["label"] == f"Chunked,chunk={chunk}"
        counts[chunk] = sum(bucket["route"]["type"] == "all_reduce" for bucket in made["buckets"])
    assert counts == {1: 4, 4: 1}
    ready_made = json.loads(call(tmp_path, "--json", "--builder", "all-reduce,chunk=2").stdout)
    assert [len(bucket["parts"]) for bucket in ready_made["buckets"]] == [2, 2, 1]
    assert ready_made["label"] == "all-reduce,chunk=2"


def test_the_fastest_of_the_settings_to_try_is_taken() -> None:
    """Broken: a builder would be judged by a setting that nobody would choose."""

    class Groups(Builder):
        chunk: int = 3
        tries = {"chunk": [1, 100]}  # noqa: RUF012  # as users write it

        def build(self, job):  # type: ignore[no-untyped-def]
            for group in job.groups(job.backward(job.dense), count=self.chunk):
                yield job.bucket(group, job.ring)

    steps_s = {
        chunk: built_by(Groups(chunk=chunk), alternating(), model(), 4).predicted_step_s
        for chunk in (1, 3, 100)
    }
    best = built_by(Groups, alternating(), model(), 4)
    assert best.predicted_step_s == pytest.approx(min(steps_s[1], steps_s[100]))
    assert best.label in ("Groups,chunk=1", "Groups,chunk=100")
    assert steps_s[1] != steps_s[100]


class Weird(Builder):
    """Owners that no rule proposes."""

    def build(self, job):  # type: ignore[no-untyped-def]
        for variable in job.backward(job.dense):
            yield job.bucket(variable, job.owned({0: 7, 1: 5, 2: 3}))


def test_a_search_goes_on_from_a_builder_s_plan() -> None:
    """Broken: `--improve` would ignore what a user's rule found."""
    cluster, made_for = next(
        case
        for case in CASES.values()
        if sum(host.slots for host in case[0].hosts) == 4
        and "owned" in question_of(*case, 4, EXACT, None).admitted
    )
    question = question_of(cluster, made_for, 4, EXACT, None, builders=[asked_for(Weird)])
    [(_, given)] = built(question, question.builders)
    routes, begun = starts(question, [given])
    assert len(routes) == 1
    assert len(begun[0]) == len(given.buckets)
    solved = question.solved(200, given=[given])
    assert any(getattr(each.exchange, "shares", ()) == (7, 5, 3, 0) for each in solved.solution.proposals)
    assert solved.plan().predicted_step_s <= given.predicted_step_s + 1e-9
    assert plan(cluster, made_for, 4, builders=[Weird]).predicted_step_s <= given.predicted_step_s + 1e-9


def test_a_search_does_not_begin_with_what_it_may_not_choose(tmp_path: Path) -> None:
    """Broken: policies would be given to gradients for which nobody traced them."""
    path = page.copied(tmp_path)["large.py"]
    asked = asked_for(f"{path}:Int8ForLarge,large_bytes=100000")
    question = question_of(page.cluster(), page.profile(), 4, LOSSY, None, builders=[asked])
    [(_, made)] = built(question, question.builders)
    assert starts(question, [made]) == ([], [])
    result = call(
        tmp_path, "--promise", "lossy", "--builder", f"{path}:Int8ForLarge,large_bytes=1000", "--improve"
    )
    assert result.exit_code == 0, result.output
    assert "Int8ForLarge" in result.output


def test_search_without_a_builder_is_refused(tmp_path: Path) -> None:
    """Broken: an option would have no effect."""
    for more in ([], ["--builder", "ring"]):
        with pytest.raises(UsageError, match="--improve: it goes on from the plan of a builder"):
            call(tmp_path, "--improve", *more)


def test_trials_try_a_builder_s_plans(caplog: pytest.LogCaptureFixture) -> None:
    """Broken: a search in training would ignore `--builder`, or end by a mistake in it."""

    class Wrong(Builder):
        def build(self, job):  # type: ignore[no-untyped-def]
            raise ValueError("no such day")

    builders = [asked_for(Weird), asked_for(Wrong)]
    question = question_of(alternating(), model(), 4, EXACT, None, builders=builders)
    incumbent = considered(alternating(), model(), 4).uniform[0]
    trials = Trials(question, incumbent, trials_max=3)
    first, second = trials.next(), trials.next()
    assert first is not None
    assert second is not None
    assert (first, second.label) == (incumbent, "Weird")
    trials.observe(first, 1.0, 0.01)
    proposed = {each.label for each in _all_proposals(trials)}
    assert "Weird" in proposed
    assert "the search goes on without a builder: builder Wrong" in caplog.text
    assert "no such day" in caplog.text
    assert caplog.text.count("no such day") == 1


def _all_proposals(trials: Trials) -> list[Plan]:
    known = trials._known()
    return [*trials._proposals(known, known.draws(4, 1)), *trials._proposals(known, known.draws(4, 1))]


def test_choices_of_policies_differ(tmp_path: Path) -> None:
    """Broken: two policies would count as one choice."""
    made = built_by(
        f"{page.copied(tmp_path)['large.py']}:Int8ForLarge,large_bytes=100000",
        page.cluster(),
        page.profile(),
        4,
        promise=LOSSY,
    )
    assert len({each[0] for each in choices(made).values()}) == 3


@pytest.mark.parametrize(
    "policy", ["int8", "double_squeeze", "top_k", "power_sgd", "two_level", "partial_f16"]
)
def test_predicted_bytes_of_policies_are_sent(policy: str) -> None:
    """Broken: a plan with policies would be compared by other traffic than it makes."""
    question = question_of(page.cluster(), page.profile(sparse=False), 4, LOSSY, None)

    class Policed(Builder):
        def build(self, job):  # type: ignore[no-untyped-def]
            for variable in job.dense:
                yield job.bucket(variable, Traced(policy=policy))

    [(_, made)] = built(question, [asked_for(Policed)])
    topology = topology_of(question.graph)
    at, bucket = next((at, each) for at, each in enumerate(made.buckets) if each.variables == ("0.weight",))
    counted = traffic(bucket, topology)
    with Job(list(topology.hosts)) as job:
        before = [engine.bytes_sent() for engine in job.engines]
        inputs = np.random.default_rng(1).standard_normal((4, bucket.elements))
        job.run(
            unverified(at, made, topology=topology), [[row.astype(STORED[bucket.dtype])] for row in inputs]
        )
        sent = {
            (source, to): total - before[source][to]
            for source, engine in enumerate(job.engines)
            for to, total in enumerate(engine.bytes_sent())
            if total != before[source][to]
        }
    if policy == "top_k":  # of its counts and values, as many as it says
        assert sent.keys() == counted.sent.keys()
    assert sent == counted.sent


def test_a_job_takes_a_builder_for_its_search_alone(tmp_path: Path) -> None:
    """Broken: ranks would start, and ignore the builder or fail on it one by one."""
    path = page.copied(tmp_path)["mine.py"]
    for builder, more, wanted in (
        (f"{path}:Chunked", [], "no search would try its plans\nhint: --search TIME as well"),
        (f"{path}:Chunk", ["--search", "1m"], "mine.py has no class Chunk\nhint: it has Chunked"),
        ("all-reduce,chunk=some", ["--search", "1m"], "Expected `int`, got `str`: setting `chunk`"),
        (f"{tmp_path / 'none.py'}", ["--search", "1m"], "none.py does not exist"),
    ):
        with pytest.raises(UsageError, match=wanted):
            CliRunner().invoke(run, ["--builder", builder, *more, "true"], catch_exceptions=False)
