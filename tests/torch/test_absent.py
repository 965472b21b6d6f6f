"""Elastic jobs in which a rank does not come any more: it hangs, stands still, is late, or ends before the others.

A kind of that, an edge of its step and a job are a case. `make elastic CASES=300` runs all of them, and a seed chooses some.
"""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from random import Random

import pytest

from hocket.settings import Settings
from hocket.start import replacements
from hocket.start.outcome import Outcome
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.support import drawn, warm

pytest.importorskip("torch")

from tests.torch import absent_scripts as scripts  # needs torch

pytestmark = pytest.mark.members

SCRIPT = Path(scripts.__file__)
FEW = 3
CASES = drawn.cases(FEW)
HANGS = ("loops", "holds", "stopped", "is late")
ENDS = ("exits", "breaks", "ends at once")
LEASTS = (1, 2, 3)
"""Of three ranks; where three must go on, lost ones are replaced."""
REPLACEMENTS = 5


def run(
    directory: Path, *victims: str, least: int, respawn: int = 0, hosts: str = "abc"
) -> tuple[Outcome, str]:
    """A job with a rank on each host; `victims` as the script has them."""
    out = io.BytesIO()
    outcome = launch(
        [ProcessSpec(argv=warm.command(SCRIPT, str(directory), *victims), host=host) for host in hosts],
        settings=Settings(timeout_s=6, start_timeout_s=60, heartbeat_timeout_s=4),
        members_min=least,
        members_max=len(hosts),
        respawn=respawn,
        out=out,
        err=out,
    )
    return outcome, out.getvalue().decode()


def check(directory: Path, present: set[str]) -> None:
    """These have come to the end, after the same steps and with the same bits."""
    notes = {file.stem: json.loads(file.read_text()) for file in directory.glob("*.json")}
    assert set(notes) == present
    assert all(each == notes["0"] for each in notes.values()), notes
    assert notes["0"]["world"] == len(present)


def cases() -> list[tuple[str, str, int]]:
    """What happens, at which edge, and the least number of ranks: one of each kind of absence first."""
    random = Random(0)  # noqa: S311  # a seed gives the same cases again
    drawn = list(itertools.product((*HANGS, *ENDS), scripts.EDGES, LEASTS))
    random.shuffle(drawn)
    firsts = [next(each for each in drawn if each[0] in kind) for kind in (("holds",), ENDS, ("stopped",))]
    return [*firsts, *(each for each in drawn if each not in firsts)][:CASES]


@pytest.mark.parametrize(("way", "edge", "least"), cases())
def test_the_others_go_on_without_a_rank_that_does_not_come(
    way: str,
    edge: str,
    least: int,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Broken: those that wait for a rank that hangs would be killed, and it would go on alone; or those that train on after one has
    ended would, and the job would return 0 with its work undone."""
    monkeypatch.setattr(replacements, "WAIT_S", 0.1)
    step = 0 if edge == "start" else scripts.ABSENT_IN
    respawn = REPLACEMENTS if least == 3 else 0
    outcome, output = run(tmp_path, f"1:{step}:{edge} {way}", least=least, respawn=respawn)
    assert (outcome.code, outcome.failures, outcome.ended) == (0, (), None), output + caplog.text
    check(tmp_path, {"0", "2"} | ({"3"} if respawn else set()))
    assert "without rank 1 on b" in caplog.text
    assert "rank 0 on a" not in caplog.text.replace("rank 0 on a (process", "")
    if way in ENDS:
        assert "rank 1 on b failed" not in caplog.text
    elif way != "is late":
        assert "the others went on without it, and it was killed" in caplog.text


def test_a_job_whose_work_is_not_done_never_returns_0(tmp_path: Path) -> None:
    """Broken: a rank that ends early, with 0, would make the whole job look well, though too few were left to go on."""
    outcome, output = run(tmp_path, f"1:{scripts.ABSENT_IN}:forward exits", least=3)
    assert outcome.code != 0, output
    assert outcome.ended is not None
    assert outcome.ended.lost == (1,)
    assert not list(tmp_path.glob("*.json"))


def test_an_exit_code_is_told_and_ranks_that_wait_are_not_blamed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: the code with which a script gives up would be lost in what its end does to others."""
    outcome, output = run(tmp_path, f"1:{scripts.ABSENT_IN}:batch exits with 3", least=1)
    assert outcome.code == 0, output
    check(tmp_path, {"0", "2"})
    assert "rank 1 on b failed: exit code 3" in caplog.text
    assert "killed" not in caplog.text


def test_ranks_that_are_lost_at_once_are_all_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a host with two ranks that fails would cost the job for good, as each replacement took the room of two; and what
    killed them would seem to be the launcher."""
    monkeypatch.setattr(replacements, "WAIT_S", 0.1)
    fates = (f"{rank}:{scripts.ABSENT_IN}:forward" for rank in (1, 2))
    outcome, output = run(tmp_path, *fates, least=3, respawn=REPLACEMENTS, hosts="abb")
    assert (outcome.code, outcome.failures) == (0, ()), output + caplog.text
    check(tmp_path, {"0", "3", "4"})
    assert caplog.text.count("on b failed: SIGKILL (exit code 137)") == 2
    assert "it was killed" not in caplog.text


def test_who_was_left_behind_is_not_said_to_have_died(tmp_path: Path) -> None:
    """Broken: a job that ends because a rank hangs and too few are left would say that the rank died of a signal."""
    outcome, output = run(tmp_path, f"1:{scripts.ABSENT_IN}:forward stopped", least=3)
    assert outcome.code != 0, output
    (lost,) = (each for each in outcome.failures if each.rank == 1)
    assert lost.condemned
    assert "the others went on without it" in str(lost)
