"""`hocket demo` as a person calls it: the whole way on a small cluster, wrong input, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.trace import RUN_FILE
from hocket.tools.testbed import Testbed
from tests.support import warm

pytestmark = pytest.mark.hosts

DEADLINE_S = 400


@pytest.fixture(scope="module")
def small(
    emulated: Callable[[Cluster], AbstractContextManager[Testbed]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The file of a cluster of two hosts in two racks; skipped where namespaces are not allowed."""
    cluster = Cluster(
        hosts=tuple(
            Host(name=f"host{index}", rack=f"rack{index}", bandwidth_bit_per_s=1e9) for index in range(2)
        ),
        racks=tuple(Rack(name=f"rack{index}", uplink_bit_per_s=200e6) for index in range(2)),
    )
    with emulated(cluster):
        pass
    path = tmp_path_factory.mktemp("cluster") / "small.toml"
    files.write(path, cluster)
    return path


def _demo(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        warm.hocket("demo", *arguments),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_the_main_job_from_end_to_end(small: Path, tmp_path: Path) -> None:
    """Broken: the first thing that a stranger tries would not work."""
    wanted = ("--model", "digits", "--steps", "6", "--cluster", str(small), "--json")
    ended = _demo(tmp_path, *wanted)
    assert ended.returncode == 0, ended.stderr
    out = tmp_path / "hocket-demo"
    assert "train with Hocket" in ended.stderr
    assert str(Path("hocket-demo") / "report.html") in ended.stderr
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    files.read(out / "cluster.toml", Cluster)
    profile, plan = files.read(out / "profile.json", Profile), files.read(out / "plan.json", Plan)
    numbers = json.loads(ended.stdout)
    assert numbers == json.loads((out / "demo.json").read_text())
    strategies = {each["name"]: each for each in numbers["comparison"]["strategies"]}
    assert list(strategies) == ["ddp", "ddp-f16", "hocket-two-lines", "hocket-two-lines-rounded", "hocket"]
    for each in strategies.values():
        assert len(each["losses"]) == len(each["times_s"]) == 6
        # Two ranks send each other at least half of the gradients, in two bytes each, in both directions.
        assert each["trunk_bytes_per_step"] > 2 * 151_306
    assert strategies["ddp"]["losses"] == pytest.approx(strategies["hocket-two-lines"]["losses"], rel=1e-4)
    assert strategies["ddp"]["losses"] == pytest.approx(strategies["hocket"]["losses"], rel=0.05)
    assert strategies["ddp"]["trunk_bytes_per_step"] > 1.5 * strategies["ddp-f16"]["trunk_bytes_per_step"]
    run = json.loads((out / "trace" / RUN_FILE).read_text())
    assert run["plan"]["label"] == plan.label == numbers["plan"]["label"]
    assert len(run["profile"]["gradients"]) == len(profile.gradients) == 8
    assert run["cluster"]["hosts"][1]["name"] == "host1"


def test_ctrl_c_leaves_nothing_behind(small: Path, tmp_path: Path) -> None:
    """Broken: ranks and namespaces of a demo that was stopped would go on."""
    demo = subprocess.Popen(
        warm.hocket("demo", "--model", "digits", "--cluster", str(small)),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline_s = time.monotonic() + DEADLINE_S
    while not (ranks := _descendants(demo.pid, "hocket.tools.demo.train")) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert ranks, "no rank was started"
    everything = _descendants(demo.pid, "")
    demo.send_signal(signal.SIGINT)
    _, said = demo.communicate(timeout=DEADLINE_S)
    assert (demo.returncode, said.strip()) == (130, "interrupted")
    left = [each for each in everything if Path(f"/proc/{each}").exists()]
    assert not left, left


def _descendants(process: int, command: str) -> list[int]:
    """Processes below `process` whose command line has `command`."""
    children = Path(f"/proc/{process}/task/{process}/children")
    try:
        below = [int(each) for each in children.read_text().split()]
        found = [child for child in below if command in Path(f"/proc/{child}/cmdline").read_text()]
    except OSError:
        return []
    return found + [each for child in below for each in _descendants(child, command)]


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    """Broken: `-o ~` would delete what the demo did not write."""
    (tmp_path / "thesis.tex").write_text("precious")
    ended = _demo(tmp_path, "-o", ".")
    assert ended.returncode == 2
    assert "`thesis.tex`, which is not the demo's" in ended.stderr
    assert (tmp_path / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "bert"), "'bert' is not one of 'transformer', 'digits'"),
        (("--steps", "2"), "2 is not in the range x>=3"),
        (("--seeds", "0"), "0 is not in the range x>=1"),
        (("--cluster", "missing.toml"), "cluster file missing.toml cannot be read"),
        (("--output", __file__), "is a file"),
    ],
)
def test_wrong_input_is_refused_before_anything_starts(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """Broken: a typing mistake would be found after minutes, or in a traceback."""
    ended = _demo(tmp_path, *arguments)
    assert ended.returncode in (1, 2)
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "hocket-demo").exists()


def test_a_cluster_of_several_ranks_a_host_is_refused(tmp_path: Path) -> None:
    """Broken: the demo would start fewer ranks than the cluster says."""
    host = Host(name="a", slots=2, bandwidth_bit_per_s=1e9)
    files.write(tmp_path / "slots.toml", Cluster(hosts=(host,)))
    ended = _demo(tmp_path, "--cluster", "slots.toml")
    assert ended.returncode == 2
    assert "one rank on each of at least two hosts" in ended.stderr


def test_the_script_says_what_a_rank_lacks(tmp_path: Path) -> None:
    """Broken: running the training script by hand would end in a riddle of PyTorch's."""
    clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    argv = [sys.executable, "-m", "hocket.tools.demo.train", "--strategy", "ddp", "--model", "digits"]
    argv += ["--steps", "3", "--out", str(tmp_path), "--deadline-s", "60"]
    ended = subprocess.run(argv, env=clean, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "RANK is not set" in ended.stderr
