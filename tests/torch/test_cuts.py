"""Elastic jobs on hosts of a testbed whose cables are cut, and whose ranks are killed and stopped, while others join.

`make elastic CASES=200` chooses 200 courses of events at random.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.errors import TestbedError
from hocket.settings import Settings
from hocket.tools.testbed import Testbed

pytest.importorskip("torch")

from tests.support import drawn
from tests.torch.trainings import PATIENCE_S, Spread  # needs torch

pytestmark = pytest.mark.members

HOSTS = "abcd"
"""The first two are in one rack, the others in another. The launcher is on the first."""
SILENCE_S = 3.0
"""Of jobs that are told how long to bear silence."""
BRIEF_S = 0.3
"""A cut that others bear where acknowledgements tell of it: TCP sends again within three of its time-outs, 0.2 s at least."""
FEW, EVENTS, MEMBERS_MAX = 2, 5, 5
CASES = drawn.cases(FEW)
END_OF_A_RANK = ("evicted in epoch", "the coordinator was not heard for", "the coordinator is gone")


@pytest.fixture
def bed() -> Iterator[Testbed]:
    hosts = tuple(Host(name=name, rack="xxyy"[at], bandwidth_bit_per_s=1e9) for at, name in enumerate(HOSTS))
    try:
        with Testbed(Cluster(hosts=hosts, racks=(Rack(name="x"), Rack(name="y")))) as made:
            yield made
    except TestbedError as error:
        pytest.skip(f"no namespaces here: {error}")


class Course:
    """What happens to a job, and who must be left of it."""

    def __init__(self, training: Spread, bed: Testbed, founders: str, settings: Settings) -> None:
        """A rank on each host of `founders`."""
        self.training, self.bed = training, bed
        self.stop_max_s = settings.silence_max_s(elastic=True) / 3
        self.cut_max_s = BRIEF_S if settings.silence_by_path(elastic=True) else self.stop_max_s
        self.living = {f"founder-{rank}": host for rank, host in enumerate(founders)}
        """Ranks that train, and their hosts."""
        self.said: list[str] = []
        """For those who look for the cause of a failure."""

    def goes_on(self) -> None:
        self.training.trains_on(len(self.living))

    def comes(self, host: str) -> None:
        self.living[f"newcomer-{len(self.training.newcomers)}"] = host
        self.training.come(host)

    def dies(self, name: str) -> None:
        del self.living[name]
        os.kill(self.training.process(name), signal.SIGKILL)

    def is_stopped(self, name: str, time_s: float | None) -> None:
        """That rank, for a while; None: until the others have gone on without it."""
        process = self.training.process(name)
        os.kill(process, signal.SIGSTOP)
        try:
            if time_s is not None:
                time.sleep(time_s)
                return
            host = self.living.pop(name)
            self.goes_on()
        finally:
            if Path(f"/proc/{process}").exists():
                os.kill(process, signal.SIGCONT)
        self.ends(name, by_itself=host not in self.living.values())

    def is_cut(self, away: str, time_s: float | None) -> None:
        """These hosts, from the others; None: until who has to has gone on without the others.

        Whoever can speak with the launcher goes on without those who cannot. If nobody can, nobody is missed.
        """
        cables = {"racks": ["y"]} if away == "cd" else {"hosts": away}
        with_launcher = away if HOSTS[0] in away else "".join(each for each in HOSTS if each not in away)
        near = {name: host for name, host in self.living.items() if host in with_launcher}
        self.bed.cut(**cables)
        try:
            if time_s is not None:
                time.sleep(time_s)
                return
            lost = self.living.keys() - near.keys() if near else set()
            for name in lost:
                del self.living[name]
            self.goes_on()
        finally:
            self.bed.mend(**cables)
        for name in lost:
            self.ends(name, by_itself=True)

    def ends(self, name: str, *, by_itself: bool) -> None:
        """A rank that was left behind, which says why unless its process was killed: by the launcher, or by those on its host."""
        process = self.training.process(name)
        self.training.until(lambda: not Path(f"/proc/{process}").exists())
        if by_itself and name.startswith("newcomer"):
            words = (self.training.directory / f"{name}.log").read_text()
            assert any(each in words for each in END_OF_A_RANK), (name, words)

    def happens(self, choice: random.Random) -> None:
        trained = sorted(name for name in self.living if name in self.training.steps())
        what = choice.choice(
            ["comes", "comes", "dies", "is stopped", "is stopped long", "is cut", "is cut long"]
        )
        name, host = choice.choice(trained), choice.choice(HOSTS)
        away = choice.choice(["a", "b", "c", "d", "cd"])
        pause_s = choice.uniform(0, self.cut_max_s if what == "is cut" else self.stop_max_s)
        self.said.append(f"{what}: {name} of {self.living}, {host}, {away}, {pause_s:.2f} s")
        all_train = len(trained) == len(self.living)
        match what:
            case "comes" if len(self.living) < MEMBERS_MAX:
                self.comes(host)
            case "dies" if len(trained) > 1:
                self.dies(name)
            case "is stopped":
                self.is_stopped(name, pause_s)
            case "is stopped long" if len(trained) > 1 and all_train:
                self.is_stopped(name, None)
            case "is cut":
                self.is_cut(away, pause_s)
            case "is cut long" if all_train:
                self.is_cut(away, None)


@pytest.mark.parametrize("seed", range(CASES))
def test_jobs_go_on_whatever_happens_to_their_hosts(
    seed: int, bed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: a cable that is pulled out, or a machine that hangs, would end a job, split it in two, or leave wrong parameters."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    choice = random.Random(seed)  # noqa: S311  # no secret
    founders = choice.choice(["abc", "acd", "bcd", "abcd", "aab"])
    settings = Settings(
        timeout_s=60, start_timeout_s=60, heartbeat_timeout_s=choice.choice([None, SILENCE_S])
    )
    with Spread(tmp_path, bed, founders, members_max=MEMBERS_MAX, settings=settings) as training:
        course = Course(training, bed, founders, settings)
        try:
            for _ in range(EVENTS):
                course.happens(choice)
                if choice.random() < 0.7:  # a coin that prefers one side
                    course.goes_on()
                else:
                    time.sleep(choice.uniform(0, 0.3))
            course.goes_on()
            assert training.end() == 0, training.said()
            training.check()
        except BaseException as error:
            error.add_note("\n".join([*course.said, training.said()]))
            raise


def test_a_host_that_is_cut_off_is_told_from_a_rank_that_is_stopped(
    bed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: a cut cable would cost as much patience as a process that swaps, or that one be left behind like a lost host."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = Settings(timeout_s=60, start_timeout_s=60)
    with Spread(tmp_path, bed, HOSTS, members_max=len(HOSTS), settings=settings) as training:
        course = Course(training, bed, HOSTS, settings)
        course.goes_on()
        course.is_stopped("founder-2", settings.silence_max_s(elastic=True) / 2)
        course.goes_on()
        course.is_cut("d", None)
        assert training.end() == 0, training.said()
        training.check()


def test_the_launcher_ends_with_the_last_rank_though_its_host_is_cut_off(
    bed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: nothing closes a connection that is cut, and the launcher would wait for ever for a rank that has ended."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = Settings(timeout_s=60, start_timeout_s=60, heartbeat_timeout_s=SILENCE_S)
    training = Spread(tmp_path, bed, HOSTS[:2], members_max=2, settings=settings)
    try:
        bed.cut(hosts=HOSTS[1])
        os.kill(training.process("founder-0"), signal.SIGKILL)
        assert training.launcher.wait(PATIENCE_S) != 0
        assert not Path(f"/proc/{training.process('founder-1')}").exists()
    finally:
        bed.mend(hosts=HOSTS[1])
        training.kill()


def test_ranks_end_when_the_launchers_host_is_lost_with_a_rank(
    bed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: those that are left would wait for ever for a launcher that is gone, or go on by themselves, each as another job."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = Settings(timeout_s=60, start_timeout_s=60, heartbeat_timeout_s=SILENCE_S)
    training = Spread(tmp_path, bed, HOSTS[0], members_max=len(HOSTS), settings=settings)
    try:
        others = [training.come(host) for host in HOSTS[1:]]
        training.trains_on(len(HOSTS))
        # Nobody hears that anything ends there.
        bed.cut(hosts=HOSTS[0])
        os.kill(training.process("founder-0"), signal.SIGKILL)
        training.launcher.kill()
        training.launcher.wait()
        for at, each in enumerate(others):
            assert each.wait(PATIENCE_S) != 0
            words = (tmp_path / f"newcomer-{at}.log").read_text()
            assert any(said in words for said in END_OF_A_RANK[1:]), words
        chain = training.of_the_chain()
        together = [len(own) for own in chain].index(len(HOSTS))
        assert {note["world"] for own in chain[together:] for note in own} == {len(HOSTS)}
    finally:
        bed.mend(hosts=HOSTS[0])
        training.kill()
