"""Manifests of `examples/kubernetes`: of the published schemas, whole among themselves, and run with namespaces as pods."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="no package pyyaml here")

from hocket.settings import Settings
from hocket.tools.testbed import Testbed
from tests.launch.cluster import (
    INDEX,
    Cluster,
    Pod,
    after_failure,
    manifests,
    nodes,
    of_kind,
    pods_of,
    pods_of_trainer,
)

pytestmark = pytest.mark.hosts

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
JOB, ELASTIC, TRAINJOB = (FOLDER / f"{name}.yaml" for name in ("job", "elastic", "trainjob"))
NODES = "abcd"
PATIENCE_S = 240.0

SCRIPT = """
import os, pathlib, sys, time, torch, hocket.torch as hk
folder, until = pathlib.Path(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.manual_seed(0)
plain = torch.nn.Linear(8, 8)
model, optimizer = hk.distribute(plain, torch.optim.SGD(plain.parameters(), lr=0.01))
name = f"{os.environ['HOCKET_HOST']}-{os.getpid()}"
for step in range(20 if until == "20" else 10**9):
    optimizer.zero_grad()
    model(torch.full((2, 8), float(hk.rank(model)))).square().mean().backward()
    optimizer.step()
    (folder / name).write_text(f"{step} {hk.world(model)}")
    if hk.world(model) == 1 or until != "20":
        time.sleep(0.05)
    if (folder / "stop").exists():
        break
torch.save(plain.state_dict(), folder / f"{name}.pt")
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_manifests_are_of_the_published_schemas(path: Path) -> None:
    """Broken: `kubectl apply` would refuse one, or a misspelt field would be ignored."""
    validate = pytest.importorskip("kubernetes_validate", reason="no package kubernetes-validate here")
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="no package kubeflow-trainer-api here")
    for each in manifests(path):
        if each["kind"] == "TrainJob":
            read = models.TrainerV1alpha1TrainJob.from_dict(each)
            # The models drop what they do not know.
            assert _within(each, read.to_dict()) == []
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                validate.validate(each, validate.latest_version(), strict=True)


def _within(given: object, read: object, at: str = "") -> list[str]:
    """Paths of what was given and not read."""
    if isinstance(given, dict) and isinstance(read, dict):
        return [path for key in given for path in _within(given[key], read.get(key), f"{at}.{key}")]
    if isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        return [
            path
            for i, (a, b) in enumerate(zip(given, read, strict=True))
            for path in _within(a, b, f"{at}[{i}]")
        ]
    return [] if given == read else [at]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_variable_is_one_that_hocket_or_a_launcher_reads(path: Path) -> None:
    """Broken: a misspelt variable would end all ranks, or count for nothing."""
    known = {*Settings.names(), "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    named = re.findall(r"name: ((?:HOCKET|RANK|WORLD|MASTER)\w*)", path.read_text())
    assert named
    assert set(named) <= known


def test_a_plain_job_has_as_many_pods_as_its_ranks_wait_for() -> None:
    """Broken: ranks would wait for others that are never started."""
    (job,) = of_kind(JOB, "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    world = {each["name"]: each.get("value") for each in container["env"]}["WORLD_SIZE"]
    assert int(world) == job["spec"]["completions"] == job["spec"]["parallelism"]


def test_what_becomes_of_an_elastic_rank() -> None:
    """Broken: an eviction would use up the tries of a rank, or a script that is not there would be tried 100 times."""
    job = of_kind(ELASTIC, "Job")[1]
    assert after_failure(job, 137, "DisruptionTarget") == "Ignore"
    assert after_failure(job, 143) == "Ignore"
    assert after_failure(job, 2) == "FailJob"
    assert after_failure(job, 137) == after_failure(job, 1) == "Count"
    assert job["spec"]["backoffLimitPerIndex"] > 10


@pytest.fixture
def bed() -> Iterator[Testbed]:
    with nodes(NODES) as made:
        yield made


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


class Running:
    """Containers of pods by their name, which all end with the test."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def end(self) -> None:
        for each in self.processes.values():
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.end()


def until(wanted: Callable[[], bool], cluster: Cluster) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not wanted():
        assert time.monotonic() < deadline_s, cluster.log()
        time.sleep(0.1)


@pytest.mark.parametrize(("path", "pods"), [(JOB, pods_of), (TRAINJOB, pods_of_trainer)])
def test_ranks_of_a_manifest_train_as_one(
    bed: Testbed, running: Running, script: Path, *, path: Path, pods: Callable[..., list[Pod]]
) -> None:
    """Broken: who copies the file would train as many models as there are pods, or none."""
    torch = pytest.importorskip("torch")
    (job,) = (each for each in manifests(path) if each["kind"] in ("Job", "TrainJob"))
    tmp_path = script.parent
    cluster = Cluster(bed, path, pods(job, NODES), tmp_path)
    for pod in cluster.pods:
        running.processes[pod.name] = cluster.start(pod, script, str(tmp_path), "20")
    until(lambda: all(each.poll() is not None for each in running.processes.values()), cluster)
    assert {each.returncode for each in running.processes.values()} == {0}, cluster.log()
    ends = [torch.load(each, weights_only=True) for each in tmp_path.glob("*.pt")]
    assert len(ends) == len(NODES)
    assert all(torch.equal(end["weight"], ends[0]["weight"]) for end in ends)
    told = {each.read_text() for node in NODES for each in tmp_path.glob(f"{node}-*") if each.suffix != ".pt"}
    assert told == {f"19 {len(NODES)}"}


def test_elastic_pods_fail_are_evicted_and_come_back(
    bed: Testbed, running: Running, script: Path, tmp_path: Path
) -> None:
    """Broken: an elastic job under Kubernetes would end with its first pod, or its pods would come back to nobody."""
    pytest.importorskip("torch")
    coordinator, ranks = of_kind(ELASTIC, "Job")
    cluster = Cluster(bed, ELASTIC, [*pods_of(coordinator, NODES), *pods_of(ranks, NODES)], tmp_path)
    first, *others = cluster.pods
    steps = tmp_path / "steps"
    steps.mkdir()

    def come(pod: Pod) -> None:
        running.processes[pod.name] = cluster.start(pod, script, str(steps), "stopped")

    def trains(node: str, world: int, besides: set[Path] = frozenset()) -> bool:
        return any(each.read_text().endswith(f" {world}") for each in set(steps.glob(f"{node}-*")) - besides)

    for pod in cluster.pods:
        come(pod)
    until(lambda: all(trains(node, 4) for node in NODES), cluster)
    for pod, sent, decided in ((others[2], signal.SIGKILL, "Count"), (others[3], signal.SIGTERM, "Ignore")):
        before = set(steps.glob(f"{pod.host}-*"))
        container = running.processes[pod.name]
        os.killpg(container.pid, sent)
        code = container.wait(PATIENCE_S)
        assert after_failure(ranks, 128 - code if code < 0 else code) == decided, (code, cluster.log())
        until(lambda: trains("a", 3), cluster)
        come(pod)
        until(lambda pod=pod, before=before: trains(pod.host, 4, before), cluster)
    (steps / "stop").touch()
    until(lambda: all(each.poll() is not None for each in running.processes.values()), cluster)
    assert {each.returncode for each in running.processes.values()} == {0}, cluster.log()
    assert {pod.labels.get(INDEX) for pod in others} == {"0", "1", "2", "3"}
    assert first.labels["app"] == "train-coordinator"


def test_the_image_is_made_of_what_is_here() -> None:
    """Broken: `docker build` would fail at a path that is gone, or ranks would run as root."""
    lines = re.sub(r"\\\n", " ", (FOLDER / "Dockerfile").read_text()).splitlines()
    words = [shlex.split(line, comments=True) for line in lines if line and not line.startswith("#")]
    steps = [each[0] for each in words]
    assert steps[0] == "FROM"
    copied = [word for each in words if each[0] == "COPY" for word in each[1:-1] if not word.startswith("--")]
    assert [each for each in copied if not each.startswith("dist/") and not (ROOT / each).exists()] == []
    readme = (ROOT / "README.md").read_text()
    (wheel,) = (each for each in copied if each.startswith("dist/"))
    (named,) = re.findall(r"pip install '(dist/\S+\.whl)\[torch\]'", readme)
    assert Path(named).match(wheel), f"README installs {named}"
    users = [each[1] for each in words if each[0] == "USER"]
    assert users
    assert users[-1] != "root"
    assert steps.index("USER") < steps.index("CMD")
    (numbers,) = (line for line in lines if "useradd" in line)
    for path in (JOB, ELASTIC):
        for job in of_kind(path, "Job"):
            user = job["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
            assert f"--uid {user} " in numbers
