"""Owners that update in elastic jobs: ranks are lost in real processes, and their seconds go on with what they owned."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path
from random import Random

import pytest

torch = pytest.importorskip("torch")

from tests.torch import elastic_owners_scripts as scripts  # noqa: E402  # needs torch
from tests.torch import trainings  # noqa: E402
from tests.torch.elastic_scripts import EDGES, LOST_IN, alike  # noqa: E402
from tests.torch.test_elastic import run  # noqa: E402

pytestmark = pytest.mark.members

SCRIPT = Path(scripts.__file__)
FEW = 2
CASES = int(os.environ.get("HOCKET_FUZZ_CASES", str(FEW)))
EVERY_EDGE = (*EDGES, "means", "reduced", "values", "sent")


def check(directory: Path, survivors: list[int], kind: str, *options: str) -> list[list[int]]:
    """All survivors have the bits of all others after each step, and what one process makes of the members that each step names,
    with the optimizer's state. Return these members."""
    members = [each["members"] for each in alike(directory, survivors)]
    expected = scripts.replayed(members, kind, list(options))
    for rank in survivors:
        torch.testing.assert_close(torch.load(directory / f"{rank}.pt"), expected, rtol=1e-9, atol=1e-9)
    return members


def cases() -> list[tuple[str, str, str]]:
    """Optimizers, hosts, and where a rank dies: at edges, then at random moments."""
    random = Random(5)  # noqa: S311  # a seed gives the same cases again
    edges = sorted(itertools.product("012", EVERY_EDGE), key=lambda _: random.random())
    victims = itertools.chain(
        (f"{rank}:{LOST_IN}:{edge}" for rank, edge in edges),
        (
            f"{random.randrange(3)}:{random.randrange(scripts.STEPS)}:{random.uniform(0, 20):.2f} ms after forward"
            for _ in range(CASES)
        ),
    )
    kinds, hosts = itertools.cycle(scripts.OPTIMIZERS), itertools.cycle(("abc", "aaa", "aab"))
    return list(itertools.islice(zip(kinds, hosts, victims, strict=False), CASES))


@pytest.mark.parametrize(("kind", "hosts", "victim"), cases())
def test_a_lost_owner_leaves_its_parts_to_its_second(
    kind: str, hosts: str, victim: str, tmp_path: Path
) -> None:
    """Broken: a lost rank would take the optimizer's state of its parts with it, or another one would go on from another state."""
    outcome, output = run(tmp_path, list(hosts), kind, victim, script=SCRIPT)
    assert outcome.code == 0, output
    lost = int(victim[0])
    members = check(tmp_path, [rank for rank in range(3) if rank != lost], kind)
    assert members[0] == [0, 1, 2]
    assert lost not in members[-1] or "ms after" in victim


@pytest.mark.parametrize(
    ("kind", "hosts", "options"),
    [
        ("AdamW", "abcd", ()),
        ("momentum", "aabb", (scripts.CLIPPED, scripts.SAVED)),
        ("AdamW", "aabb", (scripts.UNEVEN, scripts.SKIPPED)),
    ],
)
def test_owners_are_lost_one_after_the_other_until_one_is_left(
    kind: str, hosts: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    """Broken: a part would survive the loss of its owner, and not the next one, since its second had none."""
    victims = ("0:2:launched", "3:5:values", "1:8:sent")
    outcome, output = run(tmp_path, list(hosts), kind, *options, *victims, script=SCRIPT)
    assert outcome.code == 0, output
    members = check(tmp_path, [2], kind, *options)
    assert [len(each) for each in members] == sorted((len(each) for each in members), reverse=True)
    assert members[-1] == [2]


@pytest.mark.parametrize(
    "victims",
    [
        ("1:5:clips", "2:8:reduced"),
        ("0:5:reduced", "2:8:optimizer"),
        ("2:4:values", "0:6:forward"),
    ],
)
def test_norms_of_what_a_lost_owner_had_are_those_of_its_second(
    victims: tuple[str, ...], tmp_path: Path
) -> None:
    """Broken: ranks that are left would clip by another norm than that of all gradients, or wait for one that has it."""
    options = (scripts.CLIPPED, scripts.SAVED)
    outcome, output = run(tmp_path, list("abca"), "AdamW", *options, *victims, script=SCRIPT)
    assert outcome.code == 0, output
    check(
        tmp_path,
        [rank for rank in range(4) if str(rank) not in {each[0] for each in victims}],
        "AdamW",
        *options,
    )


@pytest.mark.parametrize(
    "victims",
    [
        ("1:5:launched", "3:5:launched"),
        ("1:5:forward", "3:5:moves"),
        ("0:5:values", "2:5:settles"),
        ("2:5:entered", "0:5:settled"),
    ],
)
def test_ranks_that_share_no_part_may_be_lost_at_once(victims: tuple[str, ...], tmp_path: Path) -> None:
    """Broken: a loss while parts find new owners would leave some without one, or with state of another step."""
    outcome, output = run(tmp_path, list("abcd"), "AdamW", *victims, script=SCRIPT)
    assert outcome.code == 0, output
    members = check(
        tmp_path, [rank for rank in range(4) if str(rank) not in {each[0] for each in victims}], "AdamW"
    )
    assert len(members[-1]) == 2


def test_an_owner_and_its_second_that_are_lost_at_once_end_the_job_by_their_names(tmp_path: Path) -> None:
    """Broken: the others would train on with optimizer state that begins anew, and nobody would know."""
    outcome, output = run(tmp_path, list("abcd"), "AdamW", "1:5:launched with 2", script=SCRIPT)
    assert outcome.code != 0, output
    assert "rank 1 on b and rank 2 on c, which are lost, were the only owners of elements" in output
    assert "hint: go on from a checkpoint" in output


@pytest.mark.parametrize(
    ("leavers", "options"),
    [
        (("1:5:forward leaves",), ()),
        (("1:5:forward leaves", "2:5:forward leaves"), ()),
        (("0:5:backward leaves", "2:8:values"), ()),
        (("1:5:reduced leaves",), (scripts.SKIPPED, scripts.UNEVEN)),
        (("1:6:reduced",), (scripts.SKIPPED,)),
    ],
)
def test_ranks_that_leave_hand_over_what_they_own(
    leavers: tuple[str, ...], options: tuple[str, ...], tmp_path: Path
) -> None:
    """Broken: whoever leaves in order would take optimizer state with it, or two at once what they have for one another; or the
    others would wait for a step that the script passes over."""
    outcome, output = run(tmp_path, list("abcd"), "AdamW", *options, *leavers, script=SCRIPT)
    assert outcome.code == 0, output
    members = check(
        tmp_path,
        [rank for rank in range(4) if str(rank) not in {each[0] for each in leavers}],
        "AdamW",
        *options,
    )
    assert len(members[-1]) == 4 - len(leavers)


def test_a_step_after_another_forward_is_refused(tmp_path: Path) -> None:
    """Broken: a loss between the two would leave ranks that have made the step, and others that have not."""
    outcome, output = run(tmp_path, list("ab"), "AdamW", scripts.LATE, script=SCRIPT)
    assert outcome.code != 0
    assert "the optimizer steps after another forward of the model" in output


def test_ranks_join_leave_and_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: newcomers would own parts without the optimizer's state of them, or the others keep what nobody steps any more."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with trainings.Local(tmp_path, "ab", ("owners", "owners"), members_min=1, members_max=4) as training:
        newcomers = [training.come("c", "owners"), training.come("a", "owners")]
        training.trains_on(4)
        os.kill(training.process("founder-1"), signal.SIGKILL)
        training.trains_on(3)
        training.leaves("founder-0")
        training.trains_on(2)
        newcomers.append(training.come("b", "owners"))
        training.trains_on(3)
        training.end()
        assert [each.returncode for each in newcomers] == [0, 0, 0], training.said()
        log = (tmp_path / "newcomer-0.log").read_text()
        assert "each rank has the optimizer's state of its parts alone" in log
    worlds = training.check()
    assert worlds[0] == 2
    assert worlds[-3:] == [3, 2, 3]
