"""`hocket.run`: what functions return and raise on ranks comes back, whatever the host of Python is."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hocket
from hocket.errors import ArtefactError, PeerError, UsageError
from tests.launch.processes import clean_environment

pytestmark = pytest.mark.tools

pytest.importorskip("torch")


class WrongError(Exception):
    """An error of a user's."""


class UnpicklableError(Exception):
    """An error that pickle makes with another number of arguments."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


def place(*more: object, word: str = "") -> tuple[int, int, tuple[object, ...], str]:
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), more, word


def trained(steps: int) -> tuple[list[float], list[float]]:
    """The rank's own gradients' part, and the parameters that all have."""
    import torch

    import hocket.torch as hk

    torch.manual_seed(1)
    model = torch.nn.Linear(2, 1)
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = torch.full((1, 2), 1.0 + int(os.environ["RANK"]))
    for _ in range(steps):
        optimizer.zero_grad()
        model(data).sum().backward()
        optimizer.step()
    return data[0].tolist(), model.weight[0].tolist()


def raises(error: Exception) -> None:
    if os.environ["RANK"] == "1":
        raise error
    time.sleep(60)


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exits() -> None:
    sys.exit(0)


def starts_another() -> object:
    return hocket.run(place, n=1)


def test_results_come_by_rank() -> None:
    """Broken: a caller would get another rank's, or none."""
    assert hocket.run(place, n=3, args=(7,), kwargs={"word": "x"}) == [(at, 3, (7,), "x") for at in range(3)]


def test_ranks_train_one_model() -> None:
    """Broken: each would train a model of its own."""
    (one, first), (other, second) = hocket.run(trained, n=2, args=(3,))
    assert one != other
    assert first == second
    # SGD at 0.1 over three steps of gradients whose mean is 1.5.
    import torch

    torch.manual_seed(1)
    start = torch.nn.Linear(2, 1).weight[0].tolist()
    assert first == pytest.approx([each - 3 * 0.1 * 1.5 for each in start])


def test_an_exception_comes_back_with_its_rank() -> None:
    """Broken: a caller could not tell what went wrong, or would wait for the others' minute."""
    with pytest.raises(PeerError, match=r"rank 1 .* exit code 1") as caught:
        hocket.run(raises, n=2, args=(WrongError("the disk"),))
    assert caught.value.rank == 1
    assert isinstance(caught.value.__cause__, WrongError)
    assert str(caught.value.__cause__) == "the disk"


def failing() -> None:
    raise UnpicklableError("a", "b")


def test_an_exception_that_cannot_travel_is_told_by_its_words() -> None:
    """Broken: the caller would see pickle's error in place of the rank's."""
    with pytest.raises(PeerError, match="UnpicklableError: a: b") as caught:
        hocket.run(failing, n=1)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(("function", "said"), [(dies, "SIGKILL"), (exits, "did not return")])
def test_an_end_without_a_result_is_an_error(function: object, said: str) -> None:
    """Broken: None would stand for it."""
    with pytest.raises(PeerError, match=said):
        hocket.run(function, n=1)  # type: ignore[arg-type]


def generator() -> object:
    return (each for each in range(3))


def test_a_result_that_cannot_travel_is_said() -> None:
    """Broken: minutes of training would end in pickle's words alone."""
    with pytest.raises(PeerError) as caught:
        hocket.run(generator, n=1)
    assert isinstance(caught.value.__cause__, UsageError)
    assert "what the function returned on rank 0 cannot be pickled" in str(caught.value.__cause__)


def test_wrong_arguments_are_refused_before_a_rank_starts(tmp_path: Path) -> None:
    """Broken: a user would wait for the start of all ranks to read of a spelling."""
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(UsageError, match="n=0"):
        hocket.run(place, n=0)
    with pytest.raises(UsageError, match="does not exist"):
        hocket.run(place, n=1, plan=tmp_path / "none.json")
    with pytest.raises(ArtefactError, match=r"plan\.json"):
        hocket.run(place, n=1, plan=tmp_path / "plan.json")
    with pytest.raises(UsageError, match="known are exact"):
        hocket.run(place, n=1, promise="nearly")
    with pytest.raises(UsageError, match="cannot travel"):
        hocket.run(place, n=1, args=((each for each in ()),))


def test_a_rank_starts_no_ranks() -> None:
    """Broken: a module that calls it as it is imported would start processes without end."""
    with pytest.raises(PeerError) as caught:
        hocket.run(starts_another, n=1)
    assert isinstance(caught.value.__cause__, UsageError)
    assert "in rank 0 of a job" in str(caught.value.__cause__)


def says() -> None:
    sys.stdout.write("größe\n")


def test_output_reaches_streams_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a notebook, whose streams have no bytes, could not show it."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    hocket.run(says, n=2)
    assert sorted(out.getvalue().splitlines()) == ["[0] größe", "[1] größe"]


SCRIPT = """
import hocket, os, time

class Own:
    value = 3

def train(folder):
    open(os.path.join(folder, os.environ["RANK"]), "w").close()
    if folder.endswith("wait"):
        time.sleep(60)
    return Own().value + int(os.environ["RANK"])

if __name__ == "__main__":
    import sys
    print(hocket.run(train, n=2, args=(sys.argv[1],)))
"""


def test_a_function_of_main_brings_what_it_uses(tmp_path: Path) -> None:
    """Broken: functions of a notebook's cells could not be found on the ranks."""
    (tmp_path / "train.py").write_text(SCRIPT)
    ran = _started(tmp_path, str(tmp_path))
    assert ran.communicate(timeout=60)[0] == "[3, 4]\n"


def test_an_interrupt_ends_all_ranks(tmp_path: Path) -> None:
    """Broken: they would go on behind an interrupted cell."""
    (tmp_path / "train.py").write_text(SCRIPT)
    folder = tmp_path / "wait"
    folder.mkdir()
    ran = _started(tmp_path, str(folder))
    while len(list(folder.iterdir())) < 2:
        assert ran.poll() is None
        time.sleep(0.05)
    ran.send_signal(signal.SIGINT)
    _, said = ran.communicate(timeout=60)
    assert said.rstrip().endswith("KeyboardInterrupt")
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout
    assert left == ""


def _started(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(directory / "train.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
        env=clean_environment(PYTHONPATH=os.pathsep.join(sys.path), TMPDIR=str(directory)),
    )
