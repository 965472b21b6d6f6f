"""A job that nobody measured drives itself: on two racks whose hosts alternate, over a narrow trunk that changes meanwhile."""

import io
import itertools
import json
from pathlib import Path

import msgspec
import pytest
import torch

from benches.autopilot.jobs import changing
from hocket.artefacts import experience, trace
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.tools.analysis.searches import searches
from tests.support import warm
from tests.torch.autopilot_rank import COMPARED, trained_alone

pytestmark = pytest.mark.hosts

SCRIPT = Path(__file__).with_name("autopilot_rank.py")
PORTS = itertools.count(29_472)
RACKS = Cluster(
    hosts=tuple(Host(name=f"h{at}", rack="ab"[at % 2], bandwidth_bit_per_s=1e9) for at in range(4)),
    racks=tuple(Rack(name=name, uplink_bit_per_s=1e8) for name in "ab"),
)
SEARCHED = 120
"""Steps of a job that searches."""
STEPS, HALVED, AGAIN = 75, 42, 30
"""Steps, after how many of them the trunk is halved until the last ones, and how many later that is noticed at the latest."""


class Job:
    """What a job has left behind: rank 0's epoch by step, parameters by rank, what it did to its plan, and what it said."""

    def __init__(self, out, kind, text):
        self.epochs = json.loads((out / f"{kind}-0.json").read_text())
        self.found = [torch.load(out / f"{kind}-{rank}.pt") for rank in range(4)]
        self.text, self.out = text, out
        traced = (out / "run.json").exists()
        self.changes = trace.read(out).changes() if traced else ()
        self.plan = trace.read(out).run.plan if traced else None

    def what(self, kind):
        return next(each for each in self.changes if each.what == kind)


def train(bed, out, kind, steps, *, weather=(), **settings):
    """A job on a testbed that is up."""
    out.mkdir(exist_ok=True)
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    specs = [
        ProcessSpec(
            argv=warm.command(SCRIPT, str(out), kind, str(steps)),
            host=host.name,
            prefix=bed.command(host.name),
            environment=environment,
        )
        for host in RACKS.hosts
    ]
    said = io.BytesIO()
    with changing(bed, out / f"{kind}.steps", weather):
        outcome = launch(
            specs,
            settings=Settings(timeout_s=60, start_timeout_s=60, **settings),
            store=f"{bed.address('h0')}:{next(PORTS)}",
            serve=False,
            out=said,
            err=said,
        )
    text = said.getvalue().decode()
    assert outcome.code == 0, text
    return Job(out, kind, text)


@pytest.fixture(scope="module")
def jobs(emulated, tmp_path_factory):
    """By name: one that finds out everything by itself, the next one on the same hosts, one whose planner is wrong, and DDP."""
    out = tmp_path_factory.mktemp("autopilot")
    cache = str(out / "cache")
    with emulated(RACKS) as bed:
        found = {}
        for name, kind, steps, weather in (
            ("first", "blind", STEPS, ((HALVED, 5e7), (STEPS - 3, 1e8))),
            ("next", "blind", 24, ()),
            ("liar", "liar", 60, ()),
        ):
            directory = out / name
            kept = {"cache": cache} if kind == "blind" else {"cache_bytes": 0}
            found[name] = train(bed, directory, kind, steps, weather=weather, trace=str(directory), **kept)
        directory = out / "search"
        settings = {"trace": str(directory), "cache": str(out / "experience"), "search": "5m"}
        found["search"] = train(bed, directory, "blind", SEARCHED, **settings)
        found["gloo"] = train(bed, out / "gloo", "gloo", COMPARED)
        found["compared"] = [
            torch.load(out / where / f"{kind}-0-compared.pt")
            for where, kind in (("first", "blind"), ("gloo", "gloo"))
        ]
    return found


@pytest.mark.timing
def test_two_lines_find_adopt_and_keep_a_better_plan(jobs):
    """A user with nothing but the two lines would train at a third of the speed, or with other parameters than DDP's."""
    first = jobs["first"]
    adopted = first.what("adopted")
    assert "two-level" in adopted.label
    assert adopted.step <= 25
    kept = first.what("kept")
    assert kept.after_s < 0.6 * kept.before_s
    assert f"epoch {adopted.epoch} at step {adopted.step}: {adopted.label}, predicted" in first.text
    assert first.epochs[-1] >= adopted.epoch
    assert all(torch.equal(each, first.found[0]) for each in first.found[1:])
    ours, theirs = jobs["compared"]
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert "two-level" in first.plan.label


@pytest.mark.timing
def test_a_trunk_that_is_halved_is_noticed(jobs):
    """A job would train on with a plan for a network that is no longer there."""
    after = [each.what for each in jobs["first"].changes if HALVED < each.step <= HALVED + AGAIN]
    # What follows is for `test_pilot.py` and `test_coordinator.py`: how long a look may take depends on its budget.
    assert after[0] == "drifted", jobs["first"].changes


@pytest.mark.timing
def test_the_next_job_on_the_same_hosts_begins_with_what_the_last_one_found(jobs):
    """Each job would train its first steps at a third of the speed again."""
    # The first thing that is said is about the plan with which the job began: otherwise it would be a ring.
    assert "two-level" in jobs["next"].changes[0].label
    assert all(torch.equal(each, jobs["next"].found[0]) for each in jobs["next"].found[1:])


@pytest.mark.timing
def test_a_plan_that_was_promised_to_be_fast_is_left(jobs):
    """A job would go on with a plan that is three times as slow as the one before."""
    liar = jobs["liar"]
    adopted, left = liar.what("adopted"), liar.what("left")
    assert adopted.label == "a lie"
    assert left.step - adopted.step <= 15
    assert "a lie takes" in left.why
    assert "back to" in liar.text
    began = liar.epochs.index(adopted.epoch)
    assert adopted.epoch + 1 in liar.epochs[began : began + 16]
    assert all(torch.equal(each, liar.found[0]) for each in liar.found[1:])


@pytest.mark.timing
def test_a_job_searches_while_it_trains(jobs):
    """A user who let a job search would get other parameters than DDP's, or nothing that the next job can use."""
    job = jobs["search"]
    (search,) = searches(job.changes)
    # How many there is time for, the machine decides.
    assert len(search.trials) >= 2, job.changes
    assert "a search begins" in job.text
    assert all(torch.equal(each, job.found[0]) for each in job.found[1:])
    # Each trial was an epoch of its own, and what was left was followed by one more.
    assert job.epochs[-1] >= len(search.trials)
    (found,) = experience.read(trace.experience_file(job.out))
    assert [each.measured_s for each in found.trials][-len(search.trials) :] == pytest.approx(
        [each.measured_s for each in search.trials]
    )
    assert sum(host.slots for host in found.job.cluster.hosts) == 4
    assert all(trial.measured_s < search.first_s for trial in search.trials if trial.kept)


def test_a_job_that_does_not_drive_itself_searches_if_it_is_asked_to(emulated, tmp_path):
    """Whoever keeps jobs from changing their plans could let none of them search; or it would go on to change plans after that."""
    steps = 90
    settings = {"trace": str(tmp_path), "cache_bytes": 0, "search": "4s", "autopilot": False}
    with emulated(RACKS) as bed:
        job = train(bed, tmp_path, "blind", steps, weather=((steps - 40, 5e7),), **settings)
    (search,) = searches(job.changes)
    assert search.trials, job.changes
    at = next(at for at, each in enumerate(job.changes) if each.what == "searched")
    assert job.changes[at + 1 :] == ()
    assert job.epochs[-1] == job.epochs[job.changes[at].step]
    expected = trained_alone(4, steps)
    for each in job.found:
        torch.testing.assert_close(each, expected, rtol=1e-4, atol=1e-4)


def test_what_changed_is_read_back(tmp_path):
    """The report would not show it."""
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(trace.RunInfo(world=1, hosts=("a",))))
    assert trace.read(tmp_path).changes() == ()
    line = b'{"what":"kept","step":9,"epoch":1,"label":"x","why":"y","after_s":0.5}\n'
    trace.changes_file(tmp_path).write_bytes(line + line[:20])
    (change,) = trace.read(tmp_path).changes()
    assert (change.what, change.after_s, change.before_s) == ("kept", 0.5, None)
