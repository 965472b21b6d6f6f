"""Parsers of others' files meet damage of every kind: a damaged file is read, or refused with one of Hocket's errors.

`HOCKET_FUZZ_CASES=100000 pytest tests/formats/test_damaged_files.py` draws so many files of each format. Ten million lines of
DLC are `cargo test --release -p hocket-dlc million -- --ignored`.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from hocket.errors import ArtefactError, Error
from hocket.tools.formats import dlc
from tests.formats.subjects import Subject, subjects
from tests.support import drawn
from tests.support.damage import damaged
from tests.support.dlc_files import FRAGMENT

HANG_S = 10
"""Of the processor's time, for one file."""

CASES = settings(
    max_examples=drawn.cases(300),
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.large_base_example,
    ],
)
OTHER = FRAGMENT.read_bytes()[:5000]


@contextmanager
def bounded() -> Iterator[None]:
    """TimeoutError in a parser that uses the processor for longer than HANG_S."""

    def hangs(_number: int, _frame: object) -> None:
        raise TimeoutError(f"not read after {HANG_S} s")

    before = signal.signal(signal.SIGPROF, hangs)
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    return subjects(tmp_path_factory.mktemp("subjects"))


@pytest.mark.parametrize(
    "name",
    [
        "dlc of an all-reduce",
        "msccl",
        "chakra",
        "chakra, short",
        "chakra program",
        "chakra program, short",
        "kineto",
        "kineto buckets",
        "parquet",
    ],
)
def test_damaged_files_are_read_or_refused(name: str, known: dict[str, Subject], tmp_path: Path) -> None:
    """A damaged file would end in a traceback, or never end."""
    subject = known[name]
    for other, content in subject.beside.items():
        (tmp_path / other).write_bytes(content)
    path = tmp_path / subject.name
    outcome = {"read": 0, "refused": 0}

    @CASES
    @given(data=damaged(subject.whole, [OTHER]))
    def reads_or_refuses(data: bytes) -> None:
        path.write_bytes(data)
        with bounded():
            try:
                subject.read(path)
            except Error:
                outcome["refused"] += 1
            else:
                outcome["read"] += 1

    reads_or_refuses()
    assert all(outcome.values()), outcome


@CASES
@given(data=damaged(FRAGMENT.read_bytes()))
def test_lines_of_a_damaged_dlc_file_are_counted(tmp_path: Path, data: bytes) -> None:
    """Any damage could end the reader, or cost lines without a word."""
    path = tmp_path / "t.txt"
    path.write_bytes(data)
    with bounded():
        try:
            reader = dlc.Reader(path)
            count = sum(len(dlc.lines(batch).splitlines()) for batch in reader.batches())
        except ArtefactError:
            return
    assert count == reader.wholeness.records
