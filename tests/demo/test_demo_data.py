"""The demo's data is the same on every machine with the same Python, and nothing that is scored was seen."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from hocket.errors import UsageError
from hocket.tools.demo import data
from hocket.tools.demo.task import TASKS

pytestmark = pytest.mark.hosts


def _library(root: Path, size_bytes: int, count: int = 40) -> Path:
    for index in range(count):
        path = root / f"package{index % 3}" / f"module{index}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes([33 + index]) * (size_bytes // count + 1))
    return root


def test_text_has_the_size_that_is_promised() -> None:
    """Broken: two machines would train on texts of different lengths."""
    train, held_out = data.library_text()
    assert (len(train), len(held_out)) == (data.TRAIN_BYTES, data.HELD_OUT_BYTES)
    assert b"def " in train.tobytes()


def test_the_order_of_files_depends_on_names_alone(tmp_path: Path) -> None:
    """Broken: the order of a folder's entries, which no file system promises, would change the data."""
    one, other = tmp_path / "one", tmp_path / "other"
    names = ["b.py", "a.py", "deep/c.py", "deep/er/d.py"]
    for root, order in ((one, names), (other, names[::-1])):
        for name in order:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(name)
    assert data.library_files(one) == data.library_files(other)
    assert sorted(each.as_posix() for each in data.library_files(one)) == sorted(names)


def test_what_differs_between_machines_is_left_out(tmp_path: Path) -> None:
    """Broken: installed packages, tests and generated modules would be in the data of some machines."""
    names = ["good.py", "test/t.py", "site-packages/s.py", "json/tests/j.py", "_sysconfigdata__linux.py"]
    for name in [*names, "config-3.11/c.py", "text.txt"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert [each.as_posix() for each in data.library_files(tmp_path)] == ["good.py"]


def test_no_file_is_in_both_parts(tmp_path: Path) -> None:
    """Broken: the held-out metric would be measured on text that was trained on."""
    root = _library(tmp_path, 2 * (data.TRAIN_BYTES + data.HELD_OUT_BYTES))
    train, held_out = data.library_text(root)
    assert not set(np.unique(train)) & set(np.unique(held_out))


def test_too_little_text_is_said(tmp_path: Path) -> None:
    """Broken: a stripped Python would train on an empty tensor somewhere deep in PyTorch."""
    with pytest.raises(UsageError, match=r"too little text.*\n.*--model digits"):
        data.library_text(_library(tmp_path, 1000))


def test_every_rank_and_seed_has_its_own_sequence_and_keeps_it() -> None:
    """Broken: ranks would train on the same batches, or strategies on different ones."""

    def first(seed: int, rank: int) -> list[int]:
        return [int(each) for drawn in islice(data.draws(seed, rank, 1000, 5), 4) for each in drawn]

    assert first(0, 0) == first(0, 0)
    assert len({tuple(first(seed, rank)) for seed in range(3) for rank in range(4)}) == 12
    assert all(0 <= each < 1000 for each in first(7, 3))


def test_targets_are_the_bytes_that_come_next() -> None:
    """Broken: the transformer would learn to copy, or to guess from the wrong place."""
    inputs, targets = next(TASKS["transformer"].batches(0, 0))
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert inputs.shape == targets.shape


def test_digits_are_split_without_loss() -> None:
    """Broken: accuracy would be measured on images that were trained on, or on too few."""
    (images, labels), (held_out, held_out_labels) = data.digits()
    assert len(images) + len(held_out) == 1797
    assert (len(labels), len(held_out_labels)) == (len(images), len(held_out))
    assert 0 <= images.min() <= images.max() <= 1
