"""A job that nobody measured drives itself: on two racks whose hosts alternate, over a narrow trunk."""

import io
import itertools
import json
from pathlib import Path

import msgspec
import pytest

import torch
from hocket.artefacts import trace
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.launch.processes import ProcessSpec
from hocket.launch.run import launch
from hocket.settings import Settings
from tests.support import warm

SCRIPT = Path(__file__).with_name("autopilot_rank.py")
STEPS = 40
PORTS = itertools.count(29_472)
RACKS = Cluster(
    hosts=tuple(Host(name=f"h{at}", rack="ab"[at % 2], bandwidth_bit_per_s=1e9) for at in range(4)),
    racks=tuple(Rack(name=name, uplink_bit_per_s=1e8) for name in "ab"),
)


def train(emulated, out, kind, **settings):
    """Rank 0's epoch by step, parameters by rank, and what the job said."""
    with emulated(RACKS) as bed:
        return train_on(bed, out, kind, **settings)


def train_on(bed, out, kind, **settings):
    """The same on a testbed that is up."""
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    specs = [
        ProcessSpec(
            argv=warm.command(SCRIPT, str(out), kind, str(STEPS)),
            host=host.name,
            prefix=bed.command(host.name),
            environment=environment,
        )
        for host in RACKS.hosts
    ]
    said = io.BytesIO()
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
    found = [torch.load(out / f"{kind}-{rank}.pt") for rank in range(4)]
    return json.loads((out / f"{kind}-0.json").read_text()), found, text


@pytest.mark.timing
def test_two_lines_find_adopt_and_keep_a_better_plan(emulated, tmp_path):
    """A user with nothing but the two lines would train at a third of the speed, or with other parameters than DDP's."""
    directory = tmp_path / "trace"
    directory.mkdir()
    epochs, found, text = train(emulated, tmp_path, "blind", trace=str(directory))
    changes = trace.read(directory).changes()
    adopted = next(each for each in changes if each.what == "adopted")
    assert "two-level" in adopted.label
    assert adopted.step <= 25
    kept = next(each for each in changes if each.what == "kept")
    assert kept.after_s < 0.6 * kept.before_s
    assert f"epoch {adopted.epoch} at step {adopted.step}: {adopted.label}, predicted" in text
    assert epochs[-1] >= adopted.epoch
    assert all(torch.equal(each, found[0]) for each in found[1:])
    _, given, _ = train(emulated, tmp_path, "gloo")
    assert torch.allclose(found[0], given[0], rtol=1e-5, atol=1e-5)
    assert trace.read(directory).run.plan.label == kept.label


@pytest.mark.timing
def test_the_next_job_on_the_same_hosts_begins_with_what_the_last_one_found(emulated, tmp_path):
    """Each job would train its first steps at a third of the speed again."""
    cache = str(tmp_path / "cache")
    first, second = tmp_path / "first", tmp_path / "second"
    for each in (first, second):
        each.mkdir()
    with emulated(RACKS) as bed:
        train_on(bed, tmp_path, "blind", trace=str(first), cache=cache)
        epochs, found, _ = train_on(bed, tmp_path, "blind", trace=str(second), cache=cache)
    kept = next(each for each in trace.read(first).changes() if each.what == "kept")
    assert "two-level" in kept.label
    # The first thing that is said is about the plan with which the job began: otherwise it would be a ring.
    assert "two-level" in trace.read(second).changes()[0].label
    assert len(epochs) == STEPS
    assert all(torch.equal(each, found[0]) for each in found[1:])


@pytest.mark.timing
def test_a_plan_that_was_promised_to_be_fast_is_left(emulated, tmp_path):
    """A job would go on with a plan that is three times as slow as the one before."""
    directory = tmp_path / "trace"
    directory.mkdir()
    epochs, found, text = train(emulated, tmp_path, "liar", trace=str(directory))
    changes = trace.read(directory).changes()
    adopted = next(each for each in changes if each.what == "adopted")
    assert adopted.label == "a lie"
    left = next(each for each in changes if each.what == "left")
    assert left.step - adopted.step <= 15
    assert "a lie takes" in left.why
    assert "back to" in text
    began = epochs.index(adopted.epoch)
    assert adopted.epoch + 1 in epochs[began : began + 16]
    assert all(torch.equal(each, found[0]) for each in found[1:])


def test_what_changed_is_read_back(tmp_path):
    """The report would not show it."""
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(trace.RunInfo(world=1, hosts=("a",))))
    assert trace.read(tmp_path).changes() == ()
    line = b'{"what":"kept","step":9,"epoch":1,"label":"x","why":"y","after_s":0.5}\n'
    trace.changes_file(tmp_path).write_bytes(line + line[:20])
    (change,) = trace.read(tmp_path).changes()
    assert (change.what, change.after_s, change.before_s) == ("kept", 0.5, None)
