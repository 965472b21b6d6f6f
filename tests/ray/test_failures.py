"""Lost workers, lost nodes, errors of functions, and wrong input: a sentence that names them, and nothing left behind."""

import os
import queue
import signal
import sys
import threading
import time
import types
from pathlib import Path

import pytest
import ray

import hocket.ray as hr
from hocket.errors import PeerError, RendezvousError, UsageError
from hocket.ray import session
from hocket.ray.job import begin
from hocket.ray.results import Kept
from hocket.ray.watch import Watch
from hocket.ray.worker import Ended, Worker
from hocket.ray.workers import started
from hocket.settings import Settings
from hocket.start.run import REPORT_S
from tests.ray import functions
from tests.ray.test_training import SETTINGS, fit, run_example

GONE_S = 10


def all_gone(processes):
    deadline_s = time.monotonic() + GONE_S
    while time.monotonic() < deadline_s:
        if not any(Path(f"/proc/{each}").exists() for each in processes):
            return True
        time.sleep(0.1)
    return False


def failed(function, config, directory, **options):
    """The error, and how long it took to come."""
    began_s = time.monotonic()
    with pytest.raises(PeerError) as caught:
        fit(function, config, directory=directory, **options)
    return caught.value, time.monotonic() - began_s


def resources_are_free():
    deadline_s = time.monotonic() + GONE_S
    while time.monotonic() < deadline_s:
        if ray.available_resources().get("CPU") == ray.cluster_resources().get("CPU"):
            return True
        time.sleep(0.1)
    return False


def test_a_killed_actor_is_named(nodes, tmp_path):
    """Users would look for the fault at the ranks that only miss it."""
    error, took_s = failed(functions.killed, {"victim": 2}, tmp_path)
    assert error.rank == 2
    assert error.why == "failed"
    assert str(error).startswith("rank 2 on "), error
    assert "was lost" in str(error).splitlines()[0]
    assert "node " in str(error).splitlines()[0]
    assert took_s < 60
    assert resources_are_free()


def test_a_killed_node_is_named(nodes, tmp_path):
    """All its ranks are lost, and nobody else is to blame."""
    found = {}

    def kill():
        while len(list(tmp_path.glob("[0-3]"))) < 4:
            time.sleep(0.1)
        for rank in range(4):
            found[rank] = (tmp_path / str(rank)).read_text().split()
        nodes.kill(found[3][0])

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    error, took_s = failed(functions.long, {"directory": str(tmp_path)}, tmp_path / "out")
    killer.join()
    assert error.rank in (2, 3)
    text = str(error)
    assert f"node {found[3][0][:8]}" in text
    assert "node has died" in text
    lost = [line for line in text.splitlines() if "was lost" in line]
    assert all(line.startswith(("rank 2", "rank 3")) for line in lost), text
    assert took_s < 90
    assert all_gone([process for _, process in found.values()])


def test_an_error_of_the_function_comes_with_rank_and_traceback(nodes, tmp_path):
    """`rank 0 misses rank 1` does not say what to mend."""
    error, _ = failed(functions.raises, {"victim": 1}, tmp_path)
    assert error.rank == 1
    assert str(error).startswith("rank 1 on ")
    assert "its function raised ValueError: the batch has a wrong shape" in str(error)
    assert "functions.py" in str(error)
    assert "in raises" in str(error)


def test_workers_that_never_end_are_ended(nodes, tmp_path):
    """They would hold their nodes for ever."""
    error, took_s = failed(functions.sleeps, {"victim": 0}, tmp_path)
    assert "rank 0" in str(error)
    assert "ValueError: no such file" in str(error)
    assert "were ended: [1, 2, 3]" in str(error)
    assert took_s < REPORT_S + 30
    assert resources_are_free()


@pytest.mark.parametrize(
    ("scaling", "missing"),
    [
        ({"num_workers": 9}, "9 CPU are needed, of 4 in the cluster 4 are free"),
        (
            {"num_workers": 2, "resources_per_worker": {"CPU": 1, "rack": 1}},
            "2 rack are needed, of 0 in the cluster 0 are free",
        ),
        ({"num_workers": 1, "resources_per_worker": {"CPU": 3}}, "and a node has at most 2"),
    ],
)
def test_no_room_ends_with_what_is_missing(nodes, tmp_path, scaling, missing):
    """`fit` would wait for ever for nodes that nobody starts."""
    with pytest.raises(RendezvousError) as caught:
        fit(
            functions.where,
            directory=tmp_path,
            scaling=hr.ScalingConfig(**scaling),
            settings=Settings(start_timeout_s=2),
        )
    assert missing in str(caught.value)
    assert "within 2 s" in str(caught.value)
    assert "hint: " in str(caught.value)
    assert resources_are_free()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hr.ScalingConfig(num_workers=0), "num_workers=0"),
        (lambda: hr.ScalingConfig(num_workers=2.5), "num_workers=2.5"),
        (lambda: hr.ScalingConfig(resources_per_worker={}), "has no node"),
        (lambda: hr.ScalingConfig(resources_per_worker={"CPU": -1}), "'CPU' is -1"),
        (lambda: hr.ScalingConfig(placement_strategy="NEAR"), "STRICT_SPREAD"),
        (lambda: hr.RunConfig(checkpoints_max=0), "checkpoints_max=0"),
        (lambda: hr.Trainer("train"), "is not a training function"),
        (lambda: hr.Trainer(functions.torch_backend, {"lr": 1}), "takes no argument"),
        (lambda: hr.Trainer(functions.where, settings=Settings(servers=1)), "none would train"),
        (
            lambda: hr.Trainer(functions.where, settings=Settings(coordinator="a:1")),
            "HOCKET_COORDINATOR, but",
        ),
        (lambda: hr.Checkpoint.from_directory("/nowhere"), "/nowhere is not a directory"),
        (lambda: hr.report(3), "metrics are values by name"),
        (lambda: hr.report({}, checkpoint="/tmp"), "Checkpoint.from_directory"),
    ],
)
def test_wrong_input_is_refused(make, says):
    """It would end in a traceback of Ray's, or in a job that never starts."""
    with pytest.raises(UsageError) as caught:
        make()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("127.0.0.1:9", "there is no Ray cluster at `127.0.0.1:9`"),
        ("nowhere", "RAY_ADDRESS: `nowhere` is not of the form HOST:PORT"),
    ],
)
def test_a_cluster_that_is_not_there_is_refused(tmp_path, address, says):
    """Ray would look for it for minutes, with warnings of its own library."""
    ran = run_example(2, address, tmp_path)
    assert ran.returncode == 1
    assert f"UsageError: {says}" in ran.stderr


def test_a_worker_that_is_lost_before_training_is_named(nodes):
    """Users would read that their imports are missing on the nodes."""
    with started(hr.ScalingConfig(num_workers=2), 60) as members:
        os.kill(members[1].place.process, signal.SIGKILL)
        with pytest.raises(PeerError) as caught:
            begin(members, functions.where, ({},), SETTINGS)
            Watch(members, lambda *_: None).until_the_end()
    assert str(caught.value).startswith(f"{members[1]} was lost")
    assert caught.value.rank == 1
    assert caught.value.host == members[1].host


def test_another_runs_directory_is_left_alone(tmp_path):
    """Its checkpoints would be mixed with new ones."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint_000000").write_text("")
    with pytest.raises(UsageError, match="may be another run's"):
        fit(functions.where, directory=tmp_path)


def test_files_of_two_ranks_with_one_name_are_refused(nodes, tmp_path):
    """One rank's state would replace the other's."""
    with pytest.raises(UsageError, match="which another rank's has as well"):
        fit(functions.files_of, ["a", "a"], directory=tmp_path, scaling=hr.ScalingConfig(num_workers=2))
    assert resources_are_free()


def test_a_function_that_nodes_do_not_have_is_refused(nodes, tmp_path, monkeypatch):
    """A user would see Ray's words for a module that is not on the workers."""
    module = types.ModuleType("only_here")
    exec("def train():\n    pass", module.__dict__)  # noqa: S102
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(RendezvousError, match="only_here") as caught:
        fit(module.train, directory=tmp_path)
    assert "must be on every node" in str(caught.value)
    assert resources_are_free()


def test_a_function_that_cannot_travel_is_refused(nodes, tmp_path):
    lock = threading.Lock()

    def train():
        lock.acquire()

    with pytest.raises(UsageError, match="cannot travel"):
        fit(train, directory=tmp_path)


def test_answers_that_are_lost_come_again():
    """A report would be missing, or the end would never come."""
    worker = Worker()
    worker.start(functions.reports_twice, (), {}, None)
    first = worker.next(0, 10)
    while len(first) < 3:
        first = worker.next(0, 10)
    assert worker.next(0, 10) == first
    assert worker.next(1, 10) == first[1:]
    assert first[-1] == Ended()
    assert worker.next(3, 0.1) == []


def test_reports_that_nobody_fetches_are_an_error(monkeypatch):
    """The function would wait for ever."""
    monkeypatch.setattr(session, "FETCH_TIMEOUT_S", 0.1)
    of_one = session.Session(queue.Queue(1), None)
    of_one.report({}, None)
    with pytest.raises(RendezvousError, match="were not fetched within"):
        of_one.report({}, None)


def test_old_checkpoints_make_room(tmp_path):
    """A disk would fill."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "state").write_text("state")
    packed = hr.Checkpoint.from_directory(tmp_path / "files").packed()
    kept = Kept(hr.RunConfig(storage_path=tmp_path, name="run", checkpoints_max=2))
    for at in range(4):
        kept.take(0, at, {}, packed)
    assert sorted(each.name for each in (tmp_path / "run").iterdir()) == [
        "checkpoint_000002",
        "checkpoint_000003",
    ]
    assert kept.newest.path.name == "checkpoint_000003"
