"""Ranks of elastic jobs that step alone between exchanges: some are lost, and the others exchange what they have made."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import pytest

torch = pytest.importorskip("torch")

from hocket.settings import Settings  # noqa: E402
from tests.support import drawn  # noqa: E402
from tests.torch import elastic_local_join_scripts as join_scripts  # noqa: E402  # needs torch
from tests.torch import elastic_local_scripts as scripts  # noqa: E402
from tests.torch import recovery_scripts, trainings  # noqa: E402
from tests.torch.elastic_scripts import EDGES, alike  # noqa: E402
from tests.torch.test_elastic import run  # noqa: E402

pytestmark = pytest.mark.members

SCRIPT = Path(scripts.__file__)
WORLD = 3
LOST_IN = (5, 6, 7)
"""Steps of which one ends with an exchange, in each case."""
FEW = 2
CASES = drawn.cases(FEW)
"""Cases of each kind."""


def check(directory: Path, name: str, survivors: list[int], world: int = WORLD) -> list[list[int]]:
    """Return the members of each exchange. All survivors have one anchor, and what one process makes of the same exchanges."""
    exchanges = alike(directory, survivors)
    reference = scripts.replayed(exchanges, name, world)
    expected = [scripts.flat(reference.models[rank].parameters()) for rank in survivors]
    reference.flush()
    for rank, own in zip(survivors, expected, strict=True):
        both = [own.detach(), reference.anchor.detach()]
        torch.testing.assert_close(torch.load(directory / f"{rank}.pt"), both, rtol=1e-9, atol=1e-9)
    return [each["members"] for each in exchanges]


def cases() -> list[tuple[str, str, str]]:
    """Kinds of exchanges, hosts, and where rank 1 dies: of each kind some, at the edges of a step and in the flush at the end."""
    random = Random(3)  # noqa: S311  # a seed gives the same cases again
    places = [*itertools.product(LOST_IN, EDGES)]
    places += [(scripts.FLUSHED, edge) for edge in EDGES if edge not in ("forward", "backward")]
    victims = [f"1:{step}:{edge}" for step, edge in places]

    def moment() -> str:
        return f"1:{random.randrange(scripts.STEPS)}:{random.uniform(0, 20):.2f} ms after forward"

    found = []
    for name in scripts.CASES:
        edges = random.sample(victims, len(victims))
        of_kind = itertools.islice(itertools.chain(edges, iter(moment, "")), CASES)
        found += [(name, random.choice(("abc", "aaa", "aab")), each) for each in of_kind]
    return found


@pytest.mark.parametrize(("name", "hosts", "victim"), cases())
def test_a_lost_rank_costs_the_others_none_of_their_steps(
    name: str, hosts: str, victim: str, tmp_path: Path
) -> None:
    """Broken: a rank that is lost would end the job, or the others would go apart, or lose what they have made since the last
    exchange."""
    outcome, output = run(tmp_path, list(hosts), name, victim, script=SCRIPT)
    assert outcome.code == 0, output
    members = check(tmp_path, name, [0, 2])
    without = members.count([0, 2])
    assert members == [[0, 1, 2]] * (len(members) - without) + [[0, 2]] * without


@pytest.mark.parametrize("name", scripts.WAYS)
def test_default_plans_and_policies_go_on(name: str, tmp_path: Path) -> None:
    """Broken: what a policy keeps of progress would be lost with another rank, or would be another one's on each."""
    outcome, output = run(tmp_path, list("abc"), name, "1:14:launched", "0:23:forward", script=SCRIPT)
    assert outcome.code == 0, output
    (found,) = (json.loads(file.read_text()) for file in tmp_path.glob("*.json"))
    assert found[-2]["loss"] < found[0]["loss"] / 2


def test_samples_of_steps_that_are_lost_are_drawn_again(tmp_path: Path) -> None:
    """Broken: what a lost rank had drawn since the last exchange would be missing from the epoch."""
    outcome, output = run(tmp_path, list("abc"), "draws", "1:7:forward", script=SCRIPT)
    assert outcome.code == 0, output
    drawn = {
        rank: [json.loads(line) for line in (tmp_path / f"{rank}.drawn").read_text().splitlines()]
        for rank in range(WORLD)
    }
    assert drawn[1][-1][0] == 7
    exchanged = [own for rank in (0, 2) for own in drawn[rank]] + [own for own in drawn[1] if own[0] < 6]
    found = Counter(itertools.chain.from_iterable(batch for _, batch in exchanged))
    assert set(found) == set(range(scripts.SAMPLES))
    # All have equally many batches, which may take a sample twice.
    assert found.total() < scripts.SAMPLES + WORLD * scripts.BATCH


@pytest.mark.parametrize("name", join_scripts.LOCALS)
def test_ranks_join_and_leave(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: newcomers would begin apart from the others' anchor or without the outer optimizer's momentum, or a leaver would take
    with it what it has made since the last exchange."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(trainings, "SCRIPT", Path(join_scripts.__file__))
    with trainings.Local(tmp_path, "ab", (name, name), members_min=1, members_max=4) as training:
        newcomer = training.come("c", name)
        training.trains_on(3, further=9)
        training.leaves("founder-0")
        training.trains_on(2, further=9)
        outcome = training.end()
        assert (outcome.code, newcomer.returncode) == (0, 0), training.said()
        assert "has the state of the job" in (tmp_path / "newcomer-0.log").read_text()
    steps: dict[int, list[int]] = defaultdict(list)
    for own in training.notes("step").values():
        for each in own:
            steps[each["step"]].append(each["member"])
    exchanges = defaultdict(list)
    for own in training.notes("draws for").values():
        for each in own:
            exchanges[each["exchange"]].append((each["members"], each["digest"], each["alone"]))
    assert all(each == alike[0] for alike in exchanges.values() for each in alike)
    if name == "retreats":
        lengths = [alike[0][2] for _, alike in sorted(exchanges.items())]
        assert (lengths[0], lengths[-1]) == (8, 1)
        assert lengths == sorted(lengths, reverse=True)
    worlds = [world for world, _ in itertools.groupby(len(each) for each in steps.values())]
    assert worlds == [2, 3, 2]
    found = [torch.load(file) for file in tmp_path.glob("*.pt")]
    assert len(found) == 2
    for own_value, other in zip(*found, strict=True):
        assert torch.equal(own_value, other)
    if name in join_scripts.REPLAYED:
        members = {step: alike[0][0] for step, alike in exchanges.items()}
        came = dict(torch.load(file) for file in tmp_path.glob("*.came"))
        assert all(state["state"] for state in came.values())
        trained = [sorted(steps[step]) for step in range(len(steps))]
        expected = join_scripts.replayed(trained, members, came, name)
        torch.testing.assert_close(found[0], expected, rtol=1e-9, atol=1e-9)


FIXTURE = Path(__file__).parents[1] / "formats/vectors/torchft-diloco/diloco_mocked_failure_recovery_0.json"
"""Fixture of torchft's `test_diloco_mocked_failure_recovery`, as the other fixtures of `test_local.py`: one of two replicas
fails after two exchanges, and starts again. It takes a state at step 9: of the fragment exchanged there, the anchor; of the
other one, the survivor's own parameters in the middle of a turn, while the survivor waits. Here newcomers come after an
exchange and take the anchor alone, so each fragment is compared from the first exchange that both replicas make again; and
as survivors do not wait, that is some exchanges later. Gradients are equal, so the survivor's course is that of one that
waits."""


@pytest.mark.parametrize(("fragment", "begins"), [(0, 3), (1, 0)])
def test_a_rank_is_lost_and_comes_again_as_torchfts_does(
    fragment: int, begins: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: what is published of DiLoCo with failures would not be what is trained: a loss would move those that are left, or a
    newcomer would begin elsewhere."""
    survives, again = (
        [
            own[0]["history"][str(step)][f"layers.{fragment}.weight"][0][0]
            for step in range(len(own[0]["history"]))
        ]
        for own in json.loads(FIXTURE.read_text())
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(trainings, "SCRIPT", Path(recovery_scripts.__file__))
    settings = Settings(timeout_s=60, start_timeout_s=30, heartbeat_timeout_s=10, on_drift="off")
    with trainings.Local(
        tmp_path, "aa", ("", ""), members_min=1, members_max=2, respawn=1, settings=settings
    ) as training:
        # The fixture's replica fails after two exchanges: here in the turn after the second one, or a later one.
        training.trains_on(2, further=2 * recovery_scripts.EVERY)
        os.kill(training.process("founder-1"), signal.SIGKILL)
        training.trains_on(2, further=3 * recovery_scripts.EVERY)
        outcome = training.end()
        assert outcome.code == 0, training.said()
        steps = training.steps()
    lost, survivor, newcomer = steps["founder-1"], steps["founder-0"], steps["founder-newcomer"]
    ours = [survivor[0]["before"], *(each["after"] for each in survivor)]
    # From the first whole turn on, the fixture's course from its anchor is that from ours.
    wanted = [each - survives[begins] for each in survives[begins:]]
    assert len(wanted) >= 3 * recovery_scripts.EVERY
    assert [each - ours[0] for each in ours[: len(wanted)]] == pytest.approx(wanted, abs=1e-6)
    # Each later period is one period further: through the loss and the join.
    period = survives[begins + 12] - survives[begins + 6]
    for step, value in enumerate(ours[:-1]):
        turns, at = divmod(step, recovery_scripts.EVERY)
        assert value == pytest.approx(ours[0] + turns * period + wanted[at], abs=1e-6), step
    for each in lost:
        assert each["after"] == pytest.approx(ours[each["step"] - survivor[0]["step"] + 1], abs=1e-6)
    # The newcomer begins with the anchor of an exchange, and goes on as the replica that came again.
    came = newcomer[0]["step"] - survivor[0]["step"]
    assert came > lost[-1]["step"] - survivor[0]["step"]
    assert newcomer[0]["before"] == pytest.approx(survivor[came - 1]["anchor"], abs=1e-6)
    first = begins + 6 if fragment else begins
    after = [each - again[first] for each in again[first:]]
    assert len(after) > recovery_scripts.EVERY
    found = [newcomer[0]["before"], *(each["after"] for each in newcomer)]
    assert [each - found[0] for each in found[: len(after)]] == pytest.approx(after, abs=1e-6)
