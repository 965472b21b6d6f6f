"""A plan in virtual time, from Python and from the command line, to the report."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts import files, trace
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.plan import AllReduce
from hocket.artefacts.profile import Gradient
from hocket.artefacts.promise import ROUNDED
from hocket.cli.main import hocket
from hocket.errors import SimulationError, UsageError
from hocket.planning import search
from hocket.planning.links import link_graph
from hocket.tools.report import numbers
from hocket.tools.simulation import fidelity, flow, shortlist, simgrid
from hocket.tools.simulation.conditions import Conditions, LinkChange
from hocket.tools.simulation.networks import from_cluster


@pytest.fixture
def cluster():
    hosts = tuple(Host(name=f"node{at}", rack=f"rack{at % 2}", bandwidth_bit_per_s=1e9) for at in range(4))
    return Cluster(hosts=hosts, racks=tuple(Rack(name=f"rack{at}", uplink_bit_per_s=1e8) for at in range(2)))


@pytest.fixture
def profile():
    return search.neutral_profile()


def test_closed_form_and_flows_agree_on_what_the_planner_considers(cluster, profile):
    """The planner and the simulator would advise different plans."""
    for plan in search.candidates(cluster, profile, 4, promise=ROUNDED):
        by_flow = fidelity.predict(plan, cluster, profile)
        by_form = fidelity.predict(plan, cluster, profile, fidelity="closed-form")
        assert by_flow.step_s == pytest.approx(by_form.step_s, rel=0.15), plan.label


def test_the_same_seed_gives_the_same_step(cluster, profile):
    """A sweep could not be repeated."""
    plan = search.plan(cluster, profile, 4)
    network = from_cluster(cluster, 4)
    conditions = Conditions(seed=7, jitter=0.3, slow=((1, 1.5),))
    first, again = (flow.predict(plan, network, profile, conditions=conditions, steps=3) for _ in range(2))
    assert first.outcome == again.outcome
    other = flow.predict(plan, network, profile, conditions=Conditions(seed=8, jitter=0.3), steps=3)
    assert other.outcome.step_s != first.outcome.step_s


def test_ranks_that_only_own_are_simulated(profile):
    """Plans with idle hosts would be chosen by a formula alone, and could not be looked at before they run."""
    idle = Cluster(hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=2e8) for at in range(6)))
    found = search.considered(idle, profile, 6, helpers=2)
    assert found.best.workers == (0, 1, 2, 3)
    assert any(max(bucket.order) > 3 for bucket in found.best.buckets)
    outcome = fidelity.predict(found.best, idle, profile)
    assert 0.95 < outcome.step_s / found.best.predicted_step_s < 1.05
    ring = found.of_builder("ring")
    assert ring.world == 4
    assert outcome.step_s < fidelity.predict(ring, idle, profile).step_s
    chosen = shortlist.chosen(found, idle, profile)
    assert sum(each.simulated_step_s is not None for each in chosen.evidence.candidates) > 1


def test_a_link_that_fails_ends_in_an_error_that_names_who_is_stuck(cluster, profile):
    """A job that hangs would be given a step time."""
    plan = search.plan(cluster, profile, 4)
    failed = Conditions(changes=(LinkChange(link="trunk of rack0 out", at_s=0.01),))
    with pytest.raises(SimulationError, match="first op that never ended: rank") as stuck:
        flow.predict(plan, from_cluster(cluster, 4), profile, conditions=failed)
    assert stuck.value.ranks == (0, 1, 2, 3)
    assert stuck.value.at_s >= 0.01
    with pytest.raises(UsageError, match="there is no link `nothing`"):
        unknown = Conditions(changes=(LinkChange(link="nothing", at_s=0.0),))
        flow.predict(plan, from_cluster(cluster, 4), profile, conditions=unknown)


@pytest.fixture
def written(tmp_path, cluster, profile):
    files.write(tmp_path / "cluster.toml", cluster)
    files.write(tmp_path / "profile.json", profile)
    files.write(tmp_path / "plan.json", search.plan(cluster, profile, 4))
    return tmp_path


def test_the_verb_writes_a_trace_that_the_report_reads(written, profile):
    """A simulated run could not be looked at."""
    argv = [str(written / "plan.json"), "--cluster", str(written / "cluster.toml")]
    argv += [
        "--profile",
        str(written / "profile.json"),
        "--steps",
        "2",
        "--trace",
        str(written / "trace"),
        "--json",
    ]
    done = CliRunner().invoke(hocket, ["simulate", "plan", *argv])
    assert done.exit_code == 0, done.output
    outcome = json.loads(done.output)
    assert outcome["steps"] == 2
    run = trace.read(written / "trace")
    plan = files.read(written / "plan.json", type(run.run.plan))
    for rank in range(4):
        records = run.records(rank)
        received = records[records["kind"] == trace.Kind.RECV]
        assert len(received) > 0
        assert set(records["instance"]) == {0, 1}
        assert set(received["program"]) <= set(range(len(plan.buckets)))
        steps = records[records["kind"] == trace.Kind.STEP]
        assert (steps["end_ns"] - steps["start_ns"]).mean() == pytest.approx(
            outcome["step_s"] * 1e9, rel=0.01
        )
    assert numbers(written / "trace")


def test_the_verb_refuses_what_does_not_fit(written):
    """A wrong command would look as if it had worked."""
    argv = [str(written / "plan.json"), "--cluster", str(written / "cluster.toml")]
    for more, said in (
        (["--fidelity", "closed-form", "--jitter", "0.1"], "the closed form knows one ideal step"),
        (["--slow", "9:2"], "rank 9 is 2 times as slow"),
    ):
        done = CliRunner().invoke(hocket, ["simulate", "plan", *argv, *more])
        assert isinstance(done.exception, UsageError)
        assert said in str(done.exception)
    done = CliRunner().invoke(hocket, ["simulate", "plan", *argv, "--slow", "fast"])
    assert done.exit_code == 2
    assert "is not RANK:FACTOR" in done.output


def test_without_simgrid_its_level_says_how_to_get_it(cluster, profile, monkeypatch):
    """The user would see a traceback, or another level's answer."""
    monkeypatch.setattr(simgrid, "environment", lambda: None)
    plan = search.plan(cluster, profile, 4)
    with pytest.raises(UsageError, match="hint: apt-get install python3-simgrid"):
        fidelity.predict(plan, cluster, profile, fidelity="simgrid")


def test_words_wait_at_hosts_and_not_at_trunks():
    """Direct exchanges over three racks would be predicted up to a fifth too slow: their words cross two trunks that are full."""
    hosts = tuple(Host(name=f"h{at}", rack=f"r{at // 2}", bandwidth_bit_per_s=5e8) for at in range(6))
    racks = tuple(Rack(name=f"r{at}", uplink_bit_per_s=2e8) for at in range(3))
    network = from_cluster(Cluster(hosts=hosts, racks=racks), 6)
    crossed = {network.links[link].name: network.links[link].queue_s for link in network.path(0, 5)[0]}
    assert list(crossed.values()) == [0.05, 0.0, 0.0, 0.05], crossed


@pytest.mark.skipif(simgrid.environment() is None, reason=simgrid.MISSING)
@pytest.mark.parametrize("algorithm", ["ring", "two_level", "direct", "double_binary_tree"])
def test_simgrid_agrees_with_flows_on_whole_programs(cluster, algorithm):
    """Dependencies, priorities or engine times would be simulated in a way that only this engine believes in."""
    sizes = (2, 2) if algorithm == "two_level" else ()
    profile = search.neutral_profile(
        Gradient(name=f"p{at}", shape=(250_000,), dtype="f32", ready_s=0.0, needed_s=0.0) for at in range(16)
    )
    made = search.plan(cluster, profile, 4)
    route = AllReduce(algorithm=algorithm, sizes=sizes)
    buckets = tuple(
        msgspec.structs.replace(each, route=route, codec="none", codec_links=()) for each in made.buckets
    )
    plan = msgspec.structs.replace(made, buckets=buckets)
    ideal = link_graph(cluster, 4)
    ours = flow.predict(plan, ideal, profile).outcome
    theirs = simgrid.predict(plan, ideal, profile)
    assert theirs.step_s == pytest.approx(ours.step_s, rel=0.02)
    for own, other in zip(ours.buckets, theirs.buckets, strict=True):
        assert other.done_s == pytest.approx(own.done_s, rel=0.02)
