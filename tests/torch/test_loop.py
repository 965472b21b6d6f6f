"""`hk.epochs`, `hk.batches`, `hk.on_change`, `hk.scale_lr` and `hk.extra_state` in jobs of several ranks."""

from __future__ import annotations

import itertools
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import ranks, warm
from tests.torch.loop_scripts import EPOCHS, SAMPLES

ROOT = Path(__file__).parents[2]
SCRIPTS = "tests.torch.loop_scripts"


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    directory = tmp_path_factory.mktemp("two")
    names = ("each_once", "resumed", "changed", "scaled", "refused")
    calls = {name: (f"{SCRIPTS}:{name}",) for name in names}
    calls["left_behind"] = (f"{SCRIPTS}:left_behind", str(directory))
    return {"directory": [directory], **ranks.by_name(calls, 2, directory)}


def test_each_sample_once(on_two: dict[str, list[Any]]) -> None:
    """Broken: samples would be trained on twice or never in an epoch, in the same order in each, or ranks would have other numbers
    of batches and wait for one another."""
    first, second = on_two["each_once"]
    for kind, mine in first.items():
        orders = []
        for own, other in zip(mine, second[kind], strict=True):
            assert len(own) == len(other)
            every = Counter(itertools.chain.from_iterable(own + other))
            if kind == "whole batches":
                assert set(every.values()) == {1}
                assert len(every) == SAMPLES // 6 * 6
                assert {len(each) for each in own + other} == {3}
            elif kind == "one by one":
                assert set(every) == set(range(SAMPLES))
                assert every.total() - SAMPLES == SAMPLES % 2
            else:
                assert every == Counter(range(SAMPLES))
            orders.append(list(itertools.chain.from_iterable(own)))
        if kind == "in order":
            assert orders[0] == orders[1]
            assert orders[0][:6] == [0, 1, 2, 6, 7, 8]
        else:
            assert orders[0] != orders[1]


def test_a_job_goes_on_with_the_next_batch(on_two: dict[str, list[Any]]) -> None:
    """Broken: a job that begins with a checkpoint would see samples again, leave some out, repeat an epoch or skip one, whatever
    the step after which the checkpoint was saved."""
    assert on_two["resumed"] == [[], []]


def test_another_number_of_ranks_goes_on(on_two: dict[str, list[Any]], tmp_path: Path) -> None:
    """Broken: after a restart on fewer or more machines, samples would be lost or come twice."""
    after = ranks.run(f"{SCRIPTS}:taken_up", 3, tmp_path, str(on_two["directory"][0]))
    assert after.outcome.code == 0, after.output
    rest = [(epoch, each) for own in after.returned for epoch, *batch in own for each in batch]
    of_epoch = [each for own in on_two["left_behind"] for each in own]
    assert Counter(of_epoch + [each for epoch, each in rest if epoch == 1]) == Counter(range(SAMPLES))
    assert Counter(each for epoch, each in rest if epoch == EPOCHS) == Counter(range(SAMPLES))
    assert {epoch for epoch, _ in rest} == {1, EPOCHS}


def test_who_trains_is_told_and_prepared_batches_are_drawn_again(on_two: dict[str, list[Any]]) -> None:
    """Broken: a lost rank's samples would be lost with it, or those of prepared batches; or a script would not be told."""
    survivor, lost = on_two["changed"]
    start = ["the job starts", 0, 2, 0, 2, 0]
    loss = [f"rank 1 on {survivor['host']} was lost", 1, 0, 2, 1, 2]
    assert survivor["told"] == lost["told"] == [start, loss]
    assert len(lost["got"]) == 3
    counted = itertools.chain.from_iterable(survivor["got"] + lost["got"][:2])
    assert Counter(counted) == Counter(range(SAMPLES))


def test_scaled_rates_are_those_that_a_script_would_set(on_two: dict[str, list[Any]]) -> None:
    """Broken: steps would have another rate than the rule's, or schedulers another one than the script's; with gates, too."""
    for found in on_two["scaled"]:
        for scaled, by_hand in zip(found[::2], found[1::2], strict=True):
            assert scaled == pytest.approx(by_hand, rel=1e-12)


def test_what_cannot_be_is_said(on_two: dict[str, list[Any]]) -> None:
    """Broken: ranks would train on overlapping parts of the data, or from another place than the checkpoint's, and nobody would
    notice."""
    for said in on_two["refused"]:
        for name, expected in {
            "other seeds": "rank 0 has 4 samples in the order of seed 0, and rank 1 on",
            "other data": "rank 0 has 4 samples in the order of seed 0, and rank 1 on",
            "another": "in an earlier loop it had 4",
            "sampler": "sampler of a DataLoader",
            "nothing": "has no samples",
            "no batch": "at least one sample",
            "a seed": "a number of 64 bits",
            "a stream": "Stream has no length",
            "nested": "one loop over hk.epochs at a time",
            "twice": "state `mine` already",
            "loaded late": "load before the loops",
            "not of a loop": "not what hk.state_dict returned",
            "no such place": "not where a sampler can be",
            "two places": "different places of their data",
            "leaving": "ends with the first rank that ends",
            "a rule": "known are 'linear', 'sqrt'",
            "another checkpoint": "in the checkpoint it had 4",
            "no rate": "SGD has groups of parameters without a learning rate",
        }.items():
            assert expected in said[name], (name, said[name])


def test_the_example_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    """Broken: who copies the example could not start a job again."""

    def trained(*arguments: str) -> list[str]:
        command = warm.hocket("run", *arguments, "--checkpoints", str(tmp_path))
        ended = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=100)
        return ended.stdout.splitlines()

    example = "examples/train_epochs.py"
    first = trained("-n", "2", example, "--epochs", "1")
    second = trained("-n", "1", example, "--epochs", "2")
    assert [line.split(":")[-2].split()[-2:] for line in first] == [["job", "starts"], ["epoch", "0"]]
    assert [line.split(":")[-2].split()[-2:] for line in second] == [["job", "starts"], ["epoch", "1"]]
    assert float(second[1].split()[-1]) > 0.6
