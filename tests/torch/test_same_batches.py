"""Ranks that train on the same batches are told so, and others are not."""

from __future__ import annotations

from pathlib import Path

from hocket.settings import Settings
from tests.support import ranks

SCRIPTS = "tests.torch.batches_scripts"
CASES = {
    ("one seed", "plain"): "ranks 0, 1, 2 on ",
    ("seeds of two", "plain"): "ranks 0, 2 on ",
    ("nothing, then one seed", "plain"): "ranks 0, 1, 2 on ",
    ("one seed", "gates"): "ranks 0, 1, 2 on ",
    ("one seed", "owners"): "ranks 0, 1, 2 on ",
    ("one seed", "delayed"): "ranks 0, 1, 2 on ",
    ("one seed", "local"): "ranks 0, 1, 2 on ",
    ("seeds of all", "plain"): None,
    ("hk.batches", "plain"): None,
    ("a sampler", "plain"): None,
    ("the first batch alone", "plain"): None,
    ("nothing in the first step", "plain"): None,
    ("not finite at first", "plain"): None,
    ("seeds of all", "delayed"): None,
    ("seeds of all", "local"): None,
}


def test_ranks_that_train_on_the_same_batches_are_told_so(tmp_path: Path) -> None:
    """A loader that every rank shuffles alike makes many ranks learn what one would; or a job is told so where all is well."""
    calls = {each: (f"{SCRIPTS}:train", *each) for each in CASES}
    given = Settings(timeout_s=60, start_timeout_s=30)
    for case, said in ranks.by_name(calls, 3, tmp_path, settings=given).items():
        wanted = CASES[case]
        assert said[1:] == [[], []], (case, said)
        if wanted is None:
            assert said[0] == [], (case, said)
        else:
            (text,) = said[0]
            assert text.startswith(wanted), (case, text)
            assert "train on the same batches" in text
            assert "hk.batches(model, dataset, batch_size)" in text


def test_ranks_that_mean_it_are_not_told(tmp_path: Path) -> None:
    """Whoever compares ranks on purpose would be told in every run."""
    given = Settings(timeout_s=60, start_timeout_s=30, on_same_batches="off")
    ended = ranks.run(f"{SCRIPTS}:train", 2, tmp_path, "one seed", settings=given)
    assert ended.returned == [[], []], ended.output


def test_a_job_that_is_to_stop_does(tmp_path: Path) -> None:
    """Whoever does not read warnings would pay for ranks that learn what one would."""
    given = Settings(timeout_s=60, start_timeout_s=30, on_same_batches="stop")
    ended = ranks.run(f"{SCRIPTS}:train", 2, tmp_path, "one seed", settings=given)
    assert ended.outcome.code == 1, ended.output
    assert "UsageError: ranks 0, 1 on " in ended.output
    assert "train on the same batches" in ended.output
