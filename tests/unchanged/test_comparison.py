"""Comparisons of records by hand, and replays of small repositories by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.unchanged import commits, records
from tests.unchanged.__main__ import unchanged
from tests.unchanged.records import FAILED, PLAIN_MAX, Item, as_json

ROOT = Path(__file__).parents[2]
LONG = "\n".join(f"send {at}" for at in range(PLAIN_MAX))
STEP = {"predicted_s": 0.25, "loads": [["h0 out", 0.125]]}
ORDER = {"order": [0, 1, 2], "cost_s": 0.5, "simulated_s": 0.25}
BEFORE = {
    ("plan", "a"): as_json({"world": 2}),
    ("program", "a, bucket 0, chunk"): LONG,
    ("step", "a"): as_json(STEP),
    ("order", "a"): as_json(ORDER),
    ("help", "hocket plan"): "Plan.",
}


def written(path: Path, texts: dict[tuple[str, str], str]) -> str:
    records.write(path, [Item.of(*key, text) for key, text in sorted(texts.items())])
    return str(path)


@pytest.fixture
def compare(tmp_path: Path):
    def compare(after: dict[tuple[str, str], str], *options: str) -> Result:
        files = written(tmp_path / "a", BEFORE), written(tmp_path / "b", after)
        return CliRunner().invoke(unchanged, ["compare", *files, *options])

    return compare


def test_equal_records_are_equal(compare) -> None:
    """Broken: long texts would not come back as they were, or nothing would be said of what was compared."""
    result = compare(BEFORE)
    assert result.exit_code == 0
    assert [line.split() for line in result.output.splitlines()[1:]] == [
        [kind, "1", "0", "0", "0"] for kind in ("help", "order", "plan", "program", "step")
    ]


def test_what_is_missing_new_or_different_is_named(compare) -> None:
    """Broken: whoever moved code would not see what it did."""
    after = {key: text for key, text in BEFORE.items() if key[0] != "help"}
    after |= {
        ("plan", "b"): "{}",
        ("program", "a, bucket 0, chunk"): LONG.replace("send 4000\n", "wait 4000\n"),
    }
    result = compare(after)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert "missing: help hocket plan" in lines
    assert "new: plan b" in lines
    assert "different: program a, bucket 0, chunk" in lines
    assert {"  -send 4000", "  +wait 4000"} <= set(lines)
    tree = json.loads(compare(after, "--json").output)
    assert tree["different"] == [{"kind": "program", "key": "a, bucket 0, chunk"}]
    assert tree["kinds"]["help"] == {"items": 1, "missing": 1, "new": 0, "different": 0}
    assert compare(after, "--only", "step").exit_code == 0
    assert compare(after, "--only", "plan").exit_code == 1


def test_numbers_may_differ_by_the_tolerance_and_words_may_not(compare) -> None:
    """Broken: another cost model would be called equal, or another summation would not."""
    near = BEFORE | {("step", "a"): as_json(STEP | {"predicted_s": 0.25 + 2**-54 * 4})}
    assert compare(near).exit_code == 1
    assert compare(near, "--tolerance", "1e-12").exit_code == 0
    far = BEFORE | {("step", "a"): as_json(STEP | {"predicted_s": 0.2500001})}
    assert compare(far, "--tolerance", "1e-12").exit_code == 1
    renamed = BEFORE | {("step", "a"): as_json(STEP | {"loads": [["h1 out", 0.125]]})}
    assert compare(renamed, "--tolerance", "1").exit_code == 1
    program = BEFORE | {("program", "a, bucket 0, chunk"): LONG.replace("send 4000\n", "send 4001\n")}
    assert compare(program, "--tolerance", "1").exit_code == 1


@pytest.mark.parametrize(("simulated_s", "code"), [(0.25, 0), (0.2, 0), (0.26, 1)])
def test_orders_may_be_others_that_are_worth_as_much(simulated_s: float, code: int, compare) -> None:
    """Broken: a better order would be refused, or a worse one would pass."""
    other = ORDER | {"order": [0, 2, 1], "cost_s": 0.7, "simulated_s": simulated_s}
    after = BEFORE | {("order", "a"): as_json(other)}
    assert compare(after, "--orders-by-worth").exit_code == code
    assert compare(after).exit_code == 1


def test_what_could_not_be_recorded_is_told(compare) -> None:
    """Broken: half a record would pass for a whole one."""
    result = compare(BEFORE | {(FAILED, "journal"): "ImportError: moved"})
    assert result.exit_code == 1
    assert "could not be recorded after, journal: ImportError: moved" in result.output


FAKE = """
import sys, time
from pathlib import Path
out = Path(sys.argv[2])
out.write_text(Path("record").read_text())
print("recording", file=sys.stderr, flush=True)
time.sleep(float(Path("sleep").read_text()))
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One whose commit has a plan `a`, and whose checkout has another one. Its recorder copies a file."""
    root = tmp_path / "repository"
    (root / "tests/unchanged").mkdir(parents=True)
    (root / "python/hocket").mkdir(parents=True)
    (root / commits.EXTENSION).touch()
    (root / "python/hocket/__init__.py").touch()
    (root / "sleep").write_text("0")
    (root / "tests/unchanged/__main__.py").write_text(FAKE)
    written(root / "record", BEFORE)
    (root / ".gitignore").write_text("*.so\n")
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    written(root / "record", BEFORE | {("plan", "a"): as_json({"world": 3})})
    return root


def replay(root: Path, tmp_path: Path, options: Sequence[str] = ()) -> subprocess.Popen[str]:
    (tmp_path / "temporary").mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "temporary")}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.unchanged", "replay", "HEAD", *options],
        cwd=root, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def assert_nothing_is_left(root: Path, tmp_path: Path) -> None:
    trees = subprocess.run(
        ["git", "-C", str(root), "worktree", "list"], capture_output=True, text=True, check=True
    )
    assert len(trees.stdout.splitlines()) == 1
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_replay_compares_a_commit_with_the_checkout(repository: Path, tmp_path: Path) -> None:
    """Broken: a commit would be compared with itself, or leave a worktree behind."""
    process = replay(repository, tmp_path, ["--keep", str(tmp_path / "kept")])
    told, progress = process.communicate()
    assert process.returncode == 1, progress
    assert {"different: plan a", '  - "world": 2', '  + "world": 3'} <= set(told.splitlines())
    assert "== after: this checkout" in progress
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["after.jsonl", "before.jsonl"]
    assert_nothing_is_left(repository, tmp_path)
    subprocess.run(["git", "-C", str(repository), "checkout", "-q", "."], check=True)
    process = replay(repository, tmp_path)
    process.communicate()
    assert process.returncode == 0


def test_rust_that_differs_is_noticed(repository: Path) -> None:
    """Broken: a commit would be replayed with another one's extension."""
    assert not commits.differs(repository, "HEAD", commits.RUST)
    (repository / "Cargo.toml").write_text("[workspace]\n")
    subprocess.run(["git", "-C", str(repository), "add", "Cargo.toml"], check=True)
    assert commits.differs(repository, "HEAD", commits.RUST)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_replay_leaves_nothing(
    number: signal.Signals, repository: Path, tmp_path: Path
) -> None:
    """Broken: worktrees would pile up."""
    (repository / "sleep").write_text("600")
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "commit", "-q", "-a", "-m", "slow"], check=True)
    process = replay(repository, tmp_path)
    assert process.stderr is not None
    while process.stderr.readline() != "recording\n":
        assert process.poll() is None
    os.killpg(process.pid, number)
    process.communicate()
    assert process.returncode != 0
    assert_nothing_is_left(repository, tmp_path)


def test_a_commit_that_there_is_not_is_an_error(repository: Path, tmp_path: Path) -> None:
    """Broken: a slip of the keyboard would look like a difference."""
    process = subprocess.run(
        [sys.executable, "-P", "-m", "tests.unchanged", "replay", "nowhere"],
        cwd=repository, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 2
    assert process.stderr.startswith("Error: git rev-parse: ")
