"""Examples run as `docs/examples.md` says, and end with the line that is there."""

import re
import shlex
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.commands import alone

pytestmark = pytest.mark.tools

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/examples.md"
ROW = re.compile(r"\| \[\S+\]\(\S+\) \| [^|]+ \| `hocket ([^`]+)` \| ([^|]+) \|")
NUMBER = re.compile(r"\d+\.\d+")


def rows() -> list[tuple[str, str]]:
    """Command and last line of each example."""
    return [(command, line) for command, line in ROW.findall(PAGE.read_text())]


def test_every_example_is_on_the_page() -> None:
    """Broken: nobody would find it."""
    page = PAGE.read_text()
    assert [
        each.name for each in ROOT.glob("examples/train_*.py") if f"](../examples/{each.name})" not in page
    ] == []


def test_the_page_has_rows() -> None:
    """Broken: another form of the table would leave no example to run."""
    assert len(rows()) == PAGE.read_text().count("| `hocket ")
    assert len(rows()) >= 6


@pytest.mark.parametrize(("command", "line"), rows())
def test_an_example_ends_as_its_page_says(command: str, line: str) -> None:
    """Broken: who starts with it would see an error, or a model that does not learn."""
    ended = alone(warm.hocket(*shlex.split(command)), cwd=ROOT, OMP_NUM_THREADS="1")
    assert ended.returncode == 0, ended.stderr
    last = ended.stdout.splitlines()[-1].removeprefix("[0] ")
    assert NUMBER.sub("N", last) == NUMBER.sub("N", line)
    found, expected = ([float(each) for each in NUMBER.findall(text)] for text in (last, line))
    assert found == pytest.approx(expected, abs=0.1)
