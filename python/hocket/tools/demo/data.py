"""Data available on every machine: the text of Python's own standard library, and scikit-learn's digits.

The same Python gives the same bytes in the same order everywhere; whole files are held out, so nothing measured was
seen in training. Seed, rank and step alone determine a step's data.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hocket import extras
from hocket.errors import UsageError

TRAIN_BYTES = 4 << 20
HELD_OUT_BYTES = 32 << 10
LEFT_OUT = frozenset(
    (
        *("test", "tests", "idle_test", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip"),
        *("site-packages", "dist-packages", "distutils", "encodings", "pydoc_data", "__pycache__"),
    )
)
"""Folders that distributions package separately, and tables that are not text."""

GENERATED = "_sysconfigdata"
"""Prefix of the one module that differs on every machine."""

Bytes = npt.NDArray[np.uint8]
Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def library_files(root: Path) -> list[Path]:
    """Return modules below `root`, in an order that depends only on their names and mixes packages."""
    names = (path.relative_to(root) for path in root.rglob("*.py"))
    kept = [
        name
        for name in names
        if LEFT_OUT.isdisjoint(name.parts[:-1])
        and not name.name.startswith(GENERATED)
        and not name.parts[0].startswith("config-")
    ]
    return sorted(kept, key=lambda name: hashlib.sha256(name.as_posix().encode()).digest())


@cache
def library_text(root: Path | None = None) -> tuple[Bytes, Bytes]:
    """Return text to train on and text held out, `TRAIN_BYTES` and `HELD_OUT_BYTES` long, of different files.

    Raises UsageError when the library has less text than that.
    """
    root = root or Path(sysconfig.get_path("stdlib"))
    texts = _texts(root)
    held_out = _take(texts, HELD_OUT_BYTES, root)
    return _take(texts, TRAIN_BYTES, root), held_out


@cache
def digits() -> tuple[tuple[Images, Labels], tuple[Images, Labels]]:
    """Return images of shape (count, 1, 8, 8) from 0 to 1 with labels, to train on and held out: every fifth."""
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415  # a second to load, for one model only
    except ImportError:
        raise extras.missing("sklearn", "the model of digits") from None
    bundled = load_digits()
    images = (bundled.images[:, None] / 16.0).astype(np.float32)
    labels = bundled.target.astype(np.int64)
    held_out = np.arange(len(labels)) % 5 == 4
    return (images[~held_out], labels[~held_out]), (images[held_out], labels[held_out])


def draws(seed: int, rank: int, below: int, count: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield for each step `count` positions below `below`; each seed and rank has its own sequence."""
    chance = np.random.default_rng((seed, rank))
    while True:
        yield chance.integers(below, size=count)


def _texts(root: Path) -> Iterator[bytes]:
    for name in library_files(root):
        yield (root / name).read_bytes()


def _take(texts: Iterator[bytes], size_bytes: int, root: Path) -> Bytes:
    """Return whole files until there is enough, then cut: the rest of the last one is unused."""
    taken = bytearray()
    for text in texts:
        taken += text
        if len(taken) >= size_bytes:
            return np.frombuffer(bytes(taken[:size_bytes]), dtype=np.uint8)
    wanted = TRAIN_BYTES + HELD_OUT_BYTES
    raise UsageError(
        f"{root} has too little text: {wanted} bytes are needed\n"
        "hint: install the standard library's sources, or train the digits with --model digits"
    )
