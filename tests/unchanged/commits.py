"""This checkout beside another commit: a worktree of that one, its extension, and a record of each side."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

RUST = ("crates", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml")
EXTENSION = Path("python/hocket/_native.abi3.so")
RECORDER = Path("tests/unchanged")
BUILD = ("cargo", "build", "--profile", "wheel", "-p", "hocket-python", "--features", "pyo3/extension-module")
LIBRARY = Path("wheel/lib_native.so")

Told = Callable[[str], None]


class ReplayError(Exception):
    """Why two commits cannot be compared."""


def both(root: Path, base: str, into: Path, options: Sequence[str], told: Told) -> tuple[Path, Path, bool]:
    """Records of the commit and of the checkout, changes that are not committed included; and whether both are whole."""
    commit = git(root, "rev-parse", "--verify", "--end-of-options", f"{base}^{{commit}}")
    with worktree(root, commit, told) as other:
        equip(root, other, commit, told)
        files, whole = [], True
        for title, side in (("before", other), ("after", root)):
            told(f"== {title}: {commit[:12] if side == other else 'this checkout'}")
            files.append(into / f"{title}.jsonl")
            code = recorded(side, files[-1], options)
            if not files[-1].exists():
                raise ReplayError(f"{title}: the recorder ended with {code} and wrote nothing")
            whole &= code == 0
    return files[0], files[1], whole


@contextlib.contextmanager
def worktree(root: Path, commit: str, told: Told) -> Iterator[Path]:
    """A checkout of a commit, which is gone afterwards, whatever ends us but SIGKILL."""

    def end(*_: object) -> None:
        raise SystemExit(143)

    before = signal.signal(signal.SIGTERM, end)
    directory = tempfile.mkdtemp(prefix="hocket-unchanged-")
    path = Path(directory) / "base"
    try:
        told(f"== worktree of {commit[:12]}")
        git(root, "worktree", "add", "--quiet", "--detach", str(path), commit)
        yield path
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        git(root, "worktree", "prune")
        signal.signal(signal.SIGTERM, before)


def equip(root: Path, other: Path, commit: str, told: Told) -> None:
    """The other side with an extension of its own Rust, and with a recorder."""
    if not (other / RECORDER).exists():
        told("== that commit has no recorder: this checkout's")
        shutil.copytree(root / RECORDER, other / RECORDER)
    if not differs(root, commit, RUST):
        if not (root / EXTENSION).exists():
            raise ReplayError("the extension is not built: `make base` does that")
        shutil.copy2(root / EXTENSION, other / EXTENSION)
        return
    told("== Rust differs: building that commit's extension, some minutes the first time")
    # Not that of the checkout: cargo would build its crates anew afterwards.
    target = root / "target" / "unchanged"
    subprocess.run(BUILD, cwd=other, env=os.environ | {"CARGO_TARGET_DIR": str(target)}, check=True)
    shutil.copy2(target / LIBRARY, other / EXTENSION)


def differs(root: Path, commit: str, paths: Sequence[str]) -> bool:
    command = ("git", "-C", str(root), "diff", "--quiet", commit, "--", *paths)
    return subprocess.run(command, check=False).returncode != 0


def recorded(side: Path, out: Path, options: Sequence[str]) -> int:
    """The exit code of that side's own recorder on its own package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOCKET_")}
    environment = kept | {"PYTHONPATH": os.pathsep.join([str(side / "python"), str(side)])}
    command = [sys.executable, "-m", "tests.unchanged", "record", str(out), *options]
    return subprocess.run(command, cwd=side, env=environment, check=False).returncode


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReplayError(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()
