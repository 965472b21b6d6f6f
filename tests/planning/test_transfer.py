"""Plans on other clusters and for other models: each rule is asked again, and what has no meaning there is refused by its name."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts import experience, files
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.experience import Experience, Job, Trial
from hocket.artefacts.plan import AllReduce, Gathered, Owned, Owner, Plan, Rule, Traced
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Gradient as ProfiledGradient
from hocket.artefacts.promise import EXACT, ROUNDED, Promise
from hocket.cli.main import hocket
from hocket.errors import ArtefactError, UsageError
from hocket.planning.compile import programs, rows
from hocket.planning.learned import learned
from hocket.planning.question import SEED, question_of
from hocket.planning.rows import rows_max
from hocket.planning.search import built_by, candidates, plan
from hocket.planning.transfer import brought, nearest, transferred, with_experience
from tests.planning.planner_inputs import alternating, model


def star(rates, **more):
    return Cluster(
        hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=rate) for at, rate in enumerate(rates)), **more
    )


ONE_SLOW = star([1e8, 1e9, 1e9, 1e9])
LAST_SLOW = star([1e9, 1e9, 1e9, 1e8])
MODEL = model(13, 250_000)


def labelled(cluster, start, promise=EXACT, world=4):
    """A plan with one route, by the beginning of its label."""
    return next(
        each for each in candidates(cluster, MODEL, world, promise=promise) if each.label.startswith(start)
    )


def model_of(found):
    return [(each.name, each.elements) for each in found.gradients]


@pytest.mark.parametrize(
    ("rule", "rates", "shares"),
    [
        ("fastest hosts", [1e8, 1e9, 1e9, 1e9], {1: 1, 2: 1, 3: 1}),
        ("hosts by bandwidth", [8e8, 8e8, 1e9, 1e9], {0: 1, 1: 1, 2: 2, 3: 2}),
    ],
)
def test_owners_are_chosen_anew_where_other_hosts_are_slow(rule, rates, shares):
    """The slow hosts of the new cluster would own what the fast ones of the old cluster did."""
    made = next(each for each in candidates(star(rates), MODEL, 4) if each.buckets[0].rule.owners == rule)

    def of(found):
        return {owner.rank: owner.share for owner in found.buckets[0].route.owners}

    assert of(made) == shares
    found = brought(made, None, star(rates[::-1]), 4, MODEL)
    assert of(found) == {3 - rank: share for rank, share in shares.items()}
    check(found)
    assert len(programs(found)) == len(found.buckets)


def test_a_plan_for_two_racks_goes_to_racks_that_are_listed_otherwise():
    """A ring would cross the trunk at every step, and a codec be on links that are fast."""
    made = labelled(alternating(), "contiguous two-level", ROUNDED)
    coded = next(
        each
        for each in candidates(alternating(), MODEL, 4, promise=ROUNDED)
        if each.buckets[0].codec != "none" and each.label.startswith("contiguous two-level")
    )
    blocks = Cluster(
        hosts=tuple(Host(name=f"n{at}", rack="ab"[at // 3], bandwidth_bit_per_s=1e9) for at in range(6)),
        racks=tuple(Rack(name=name, uplink_bit_per_s=1e8) for name in "ab"),
    )
    found = brought(made, None, blocks, 6, MODEL)
    assert {bucket.order for bucket in found.buckets} == {(0, 1, 2, 3, 4, 5)}
    assert {bucket.route.sizes for bucket in found.buckets} == {(3, 3)}
    links = brought(coded, None, blocks, 6, MODEL).buckets[0].codec_links
    assert links
    assert all(a // 3 != b // 3 for a, b in links)


def test_what_has_no_meaning_there_is_refused_by_name():
    """A guess would train on the wrong links without a word."""
    for made, cluster, said in (
        (labelled(alternating(), "contiguous two-level"), star([1e9] * 4), "reduces by `racks`"),
        (labelled(ONE_SLOW, "given 3 owners"), star([1e9] * 4), "the rule `fastest hosts`"),
    ):
        with pytest.raises(UsageError, match=said):
            brought(made, None, cluster, 4, MODEL)
    solved = labelled(star([1e9] * 4), "given ring")
    buckets = tuple(
        msgspec.structs.replace(each, order=(2, 0, 3, 1), rule=Rule(order="solved"))
        for each in solved.buckets
    )
    with pytest.raises(UsageError, match="is `solved` for measured latencies"):
        brought(msgspec.structs.replace(solved, buckets=buckets), None, star([1e9] * 4), 4, MODEL)


def test_an_order_that_was_solved_is_solved_again():
    """A cluster whose latencies are known would get the ranks of another."""
    near, far = 1e-5, 2e-2
    pairs = [(0, 2), (1, 3)]

    def latency(a, b):
        return 0.0 if a == b else near if (min(a, b), max(a, b)) in pairs else far

    clustered = star([1e9] * 4, latency_s=[[latency(a, b) for b in range(4)] for a in range(4)])
    made = labelled(star([1e9] * 4), "given ring")
    buckets = tuple(
        msgspec.structs.replace(each, order=(0, 1, 2, 3), rule=Rule(order="solved")) for each in made.buckets
    )
    found = brought(msgspec.structs.replace(made, buckets=buckets), None, clustered, 4, MODEL)
    order = found.buckets[0].order
    assert sorted(order) == [0, 1, 2, 3]
    neighbours = {tuple(sorted((order[at], order[(at + 1) % 4]))) for at in range(4)}
    assert set(pairs) <= neighbours


def test_equal_owners_stay_all_ranks_and_one_owner_its_place():
    """Eight ranks would send to the four that the old job had."""
    made = labelled(star([1e9] * 4), "given ring")
    for rule, owners, expected in (("all", range(4), list(range(6))), ("one", [2], [2])):
        route = Owned(owners=tuple(Owner(rank=rank) for rank in owners), update="owners")
        buckets = tuple(
            msgspec.structs.replace(each, route=route, rule=Rule(order="given", owners=rule))
            for each in made.buckets
        )
        found = brought(msgspec.structs.replace(made, buckets=buckets), None, star([1e9] * 6), 6, MODEL)
        assert [owner.rank for owner in found.buckets[0].route.owners] == expected
        assert found.buckets[0].route.update == "owners"


def test_another_model_goes_by_the_route_of_most_bytes():
    """What was found with one model would be of no use to the next one."""
    small = model(5, 1000)
    found = brought(labelled(ONE_SLOW, "given 3 owners"), None, LAST_SLOW, 4, small)
    check(found)
    variables = [name for bucket in found.buckets for name in bucket.variables]
    assert sorted(variables) == sorted(each.name for each in small.gradients)
    assert all(isinstance(bucket.route, Owned) for bucket in found.buckets)


@pytest.mark.parametrize("same", [True, False], ids=["the model", "another model"])
def test_a_policy_decides_anew_on_other_hosts(same):
    """Broken: a plan in few bits would be of no use on another cluster, or would round what its policy cannot."""
    counts = ProfiledGradient(name="counts", shape=(300,), dtype="i64", ready_s=0.0, needed_s=0.0)
    other = model(5, 1000)
    to = MODEL if same else msgspec.structs.replace(other, gradients=(*other.gradients, counts))
    made = built_by("coded,codec=int4,large_bytes=0", ONE_SLOW, MODEL, 4, promise=Promise("lossy"))
    found = brought(made, None, star([1e9] * 6), 6, to)
    check(found, to.gradients)
    assert found.promise == "lossy"
    for bucket in found.buckets:
        assert isinstance(bucket.route, AllReduce if "counts" in bucket.variables else Traced)
        assert bucket.order == tuple(range(6))
    question = question_of(star([1e9] * 6), to, 6, Promise("lossy"), None)
    assert question.predicted(found).step_s > 0
    [used] = transferred(
        [experienced(ONE_SLOW, made, 1.0)], question.cluster, question, Promise("lossy")
    ).plans
    assert used.buckets == found.buckets


def experienced(cluster, made, measured_s, profile=MODEL):
    trial = Trial(plan=made, predicted_s=1.0, measured_s=measured_s, error_s=0.01)
    return Experience(job=Job(cluster=cluster, profile=profile, promise="exact"), trials=(trial,))


def test_the_nearest_cluster_counts_first_and_refusals_are_said():
    """A plan of another kind of network would come before one of the same."""
    same = experienced(ONE_SLOW, labelled(ONE_SLOW, "given 3 owners"), 1.0)
    far = experienced(alternating(), labelled(alternating(), "contiguous two-level"), 1.0)
    assert nearest([far, same], LAST_SLOW, 4) == [same, far]
    question = question_of(LAST_SLOW, MODEL, 4, EXACT, None)
    found = transferred([far, same], LAST_SLOW, question, EXACT)
    assert [each.label.startswith("experience: given 3 owners") for each in found.plans] == [True]
    assert ["reduces by `racks`" in why for why in found.refused] == [True]
    # Equal names, and another host is slow: what is believed of single links is of no use.
    assert set(found.belief.links) == {"links of hosts"}


def test_what_rounds_is_of_no_use_where_nothing_may_be_rounded():
    """A job that promised DDP's results would round, because another one was allowed to."""
    coded = next(
        each
        for each in candidates(alternating(), MODEL, 4, promise=ROUNDED)
        if each.buckets[0].codec != "none"
    )
    question = question_of(alternating(), MODEL, 4, EXACT, None)
    found = transferred([experienced(alternating(), coded, 1.0)], alternating(), question, EXACT)
    assert found.plans == ()


def test_zero_shot_is_never_slower_than_what_the_planner_has():
    """Experience would be believed where the planner knows better."""
    question = question_of(ONE_SLOW, MODEL, 4, EXACT, None)
    best = plan(ONE_SLOW, MODEL, 4)
    ring = labelled(ONE_SLOW, "given ring")
    found = transferred(
        [experienced(ONE_SLOW, ring, question.predicted(ring).step_s)], ONE_SLOW, question, EXACT
    )
    assert with_experience(best, found, question) is best
    assert with_experience(ring, found, question).predicted_step_s <= ring.predicted_step_s


@pytest.fixture
def folder(tmp_path):
    files.write(tmp_path / "one-slow.toml", ONE_SLOW)
    files.write(tmp_path / "last-slow.toml", LAST_SLOW)
    files.write(tmp_path / "profile.json", MODEL)
    files.write(tmp_path / "plan.json", labelled(ONE_SLOW, "given 3 owners"))
    kept = experienced(ONE_SLOW, labelled(ONE_SLOW, "given 3 owners"), 0.3)
    (tmp_path / "experience.jsonl").write_bytes(experience.lines(kept))
    return tmp_path


def run(folder, *argv):
    return CliRunner().invoke(hocket, ["plan", *argv])


def test_the_command_brings_a_plan_to_another_cluster(folder):
    """Users would have to copy owners by hand."""
    argv = ["--from", str(folder / "plan.json"), "--cluster", str(folder / "last-slow.toml"), "--json"]
    for more in ([], ["--profile", str(folder / "profile.json")]):
        result = run(folder, *argv, *more)
        assert result.exit_code == 0, result.output
        (found,) = {
            tuple(o["rank"] for o in b["route"]["owners"]) for b in json.loads(result.stdout)["buckets"]
        }
        assert found == (0, 1, 2)
    refused = run(folder, *argv, "--builder", "ring")
    assert "--builder and --from: each says which plan to take" in str(refused.exception)


def test_the_command_reads_experience(folder):
    """What a job found out would have to be found out again."""
    argv = ["--cluster", str(folder / "last-slow.toml"), "--profile", str(folder / "profile.json")]
    result = run(folder, *argv, "--experience", str(folder / "experience.jsonl"), "--json")
    assert result.exit_code == 0, result.output
    alone = run(folder, *argv, "--json")
    plans = [msgspec.json.decode(each.stdout, type=Plan) for each in (result, alone)]
    question = question_of(LAST_SLOW, MODEL, 4, EXACT, None)
    brought_here = transferred(experience.read(folder / "experience.jsonl"), LAST_SLOW, question, EXACT)
    known = learned(question, (), brought_here.belief)
    found, without = known.steps_s(plans, known.draws(1, SEED))[0]
    assert found <= without * (1 + 1e-9)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text[: len(text) - 40], "line 2 is damaged or truncated"),
        (lambda text: text.replace(b'"version":1', b'"version":7', 1), "line 1 has version 7"),
        (lambda text: text.split(b"\n", 1)[1], "line 1 is a trial of no job"),
        (lambda text: b"", "is empty"),
        (lambda text: text.replace(b'"measured_s":0.3', b'"measured_s":-1'), "is no time"),
        (lambda text: text.replace(b'"line":"trial"', b'"line":"guess"'), "neither a job nor a trial"),
        (lambda text: text.replace(b'"share":1', b'"share":-1'), "line 2: its plan: bucket 0: shares"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(folder, spoil, said):
    """Half of what jobs found out would be lost without a word."""
    path = folder / "experience.jsonl"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ArtefactError, match=said) as raised:
        experience.read(path)
    assert str(path) in str(raised.value)


def test_a_missing_file_is_named(tmp_path):
    """A typing mistake would end in a traceback."""
    with pytest.raises(ArtefactError, match="nowhere cannot be read"):
        experience.read(tmp_path / "nowhere")


WORDS = ProfiledGradient(
    name="words", shape=(10_000, 16), dtype="f32", ready_s=0.0, needed_s=0.0, touched=200, sparse=True
)


def with_words(found, **changes):
    own = msgspec.structs.replace(WORDS, **changes)
    return msgspec.structs.replace(found, gradients=(own, *found.gradients))


def gathered(found):
    return [each for each in found.buckets if isinstance(each.route, Gathered)]


@pytest.mark.parametrize("world", [2, 4, 8])
def test_a_plan_with_rows_goes_to_other_hosts(world):
    """A model with an embedding could not use what another job has found out: its plan would be refused as a whole."""
    profile = with_words(MODEL)
    made = plan(star([1e9] * 4), profile, 4)
    assert gathered(made)
    cluster = star([1e9] * world)
    found = brought(made, star([1e9] * 4), cluster, world, profile)
    (bucket,) = gathered(found)
    assert bucket.variables == ("words",)
    assert bucket.route.rows == rows_max(WORDS, world), "as many as are worth it among so many ranks"
    assert sorted(bucket.order) == list(range(world))
    check(found, model=profile.gradients)
    rows(found, found.buckets.index(bucket), table=False)


def test_rows_that_were_set_by_hand_stay(tmp_path):
    """A limit that somebody chose for their batches would be forgotten."""
    profile = with_words(MODEL)
    made = plan(star([1e9] * 4), profile, 4)
    buckets = tuple(
        msgspec.structs.replace(each, route=msgspec.structs.replace(each.route, rows=77))
        if isinstance(each.route, Gathered)
        else each
        for each in made.buckets
    )
    found = brought(msgspec.structs.replace(made, buckets=buckets), None, star([1e9] * 8), 8, profile)
    assert gathered(found)[0].route.rows == 77
    files.write(tmp_path / "plan.json", found)
    again = CliRunner().invoke(hocket, ["verify", str(tmp_path / "plan.json"), "--json"])
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize(("of", "to"), [(True, False), (False, True), (True, True)])
def test_plans_go_to_models_with_and_without_rows(of, to):
    """A dense model would get the rows of another one's embedding, or a sparse gradient would travel densely."""
    made = plan(star([1e9] * 4), with_words(MODEL) if of else MODEL, 4)
    other = model(7, 100_000)
    wanted = with_words(other, name="tokens", shape=(500, 8)) if to else other
    found = brought(made, star([1e9] * 4), star([1e9] * 4), 4, wanted)
    assert [each.variables for each in gathered(found)] == ([("tokens",)] if to else [])
    check(found, model=wanted.gradients)


def test_a_plan_of_rows_alone_goes_to_a_dense_model():
    """There is no other route in it that dense gradients could take."""
    made = plan(star([1e9] * 4), msgspec.structs.replace(MODEL, gradients=(WORDS,)), 4)
    found = brought(made, star([1e9] * 4), star([1e9] * 4), 4, MODEL)
    assert not gathered(found)
    check(found, model=MODEL.gradients)


def test_experience_with_rows_is_used():
    """What jobs with embeddings have found out would be refused one by one, and the next job begin from nothing."""
    profile = with_words(MODEL)
    cluster = star([1e9] * 4)
    made = plan(cluster, profile, 4)
    job = Job(cluster=cluster, profile=profile, promise="exact")
    known = Experience(job=job, trials=(Trial(plan=made, predicted_s=0.1, measured_s=0.2),))
    question = question_of(star([1e9] * 8), profile, 8, EXACT, None)
    found = transferred([known], star([1e9] * 8), question, EXACT)
    assert found.refused == ()
    assert [len(gathered(each)) for each in found.plans] == [1]


def test_a_plan_with_rows_is_brought_without_a_profile(tmp_path):
    """`hocket plan --from` would refuse its own plan, since nobody says how many rows its variables have."""
    made = plan(star([1e9] * 4), with_words(MODEL), 4)
    files.write(tmp_path / "plan.json", made)
    files.write(tmp_path / "cluster.toml", star([1e9] * 8))
    ran = CliRunner().invoke(
        hocket,
        [
            *("plan", "--cluster", str(tmp_path / "cluster.toml"), "--from", str(tmp_path / "plan.json")),
            *("-o", str(tmp_path / "moved.json")),
        ],
    )
    assert ran.exit_code == 0, ran.output
    assert len(gathered(files.read(tmp_path / "moved.json", Plan))) == 1
