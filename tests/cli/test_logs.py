"""Levels of log lines: by a setting, by options of `hocket run`, and in a program that configures `logging` itself."""

import ast
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from hocket import logs
from hocket.errors import UsageError
from hocket.settings import Settings
from tests.launch.processes import clean_environment, finish, plain, start, write

PYTHON = Path(logs.__file__).parent
SCRIPT = """
from hocket.job.rendezvous import join
with join() as job:
    job.store.barrier("end", job.rank, job.world, 60)
"""
MET = "has met the others at"


def test_every_logger_is_one_of_the_names():
    """Broken: a logger could not be named in HOCKET_LOG, or a name would switch nothing."""
    used = set()
    for path in PYTHON.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
                (name,) = node.args
                if isinstance(name, ast.Constant):
                    used.add(name.value.removeprefix("hocket."))
    assert used == set(logs.NAMES)


def test_the_page_has_all_names_and_levels():
    """Broken: nobody would know what can be named."""
    page = (PYTHON.parents[1] / "docs" / "logs.md").read_text()
    for name, what in logs.NAMES.items():
        assert f"| `{name}` | {what} |" in page, name
    assert all(f"`{level}`" in page for level in logs.LEVELS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("loud", "levels are debug, info, warning, error"),
        ("stroe=debug", "hint: store"),
        ("info,debug", "given twice"),
        ("store=info,store=debug", "level of store is given twice"),
        ("", "is no level"),
        ("info,", "is no level"),
    ],
)
def test_malformed_levels_are_refused(text, said):
    """Broken: a misspelt name would log nothing, unsaid."""
    with pytest.raises(UsageError, match=said):
        logs.levels_of(text)
    if text:
        with pytest.raises(UsageError, match="HOCKET_LOG"):
            Settings.from_environment({"HOCKET_LOG": text})


@pytest.mark.parametrize(
    ("options", "variables", "heard"),
    [
        ([], {}, False),
        (["-v"], {}, True),
        ([], {"HOCKET_LOG": "job=info"}, True),
        ([], {"HOCKET_LOG": "store=debug"}, False),
        ([], {"HOCKET_LOG": "info,job=error"}, False),
        (["-q"], {"HOCKET_LOG": "info"}, False),
    ],
)
def test_ranks_log_as_told(tmp_path, options, variables, heard):
    """Broken: a user who asks for more would get nothing, or one who asks for less everything."""
    argv = plain("run", "-n", "2", *options, write(tmp_path, SCRIPT))
    code, _, err = finish(start(argv, TMPDIR=str(tmp_path), **variables), 60)
    assert code == 0, err
    assert [f"hocket.job info: rank {rank} of 2" in err for rank in (0, 1)] == [heard, heard], err
    assert err.count(MET) == 2 * heard


def test_more_and_less_exclude_each_other(tmp_path):
    """Broken: one of them would be ignored."""
    code, _, err = finish(start(plain("run", "-v", "-q", write(tmp_path, SCRIPT))), 60)
    assert (code, "-v and -q" in err) == (2, True), err


def test_a_program_keeps_its_own_handlers():
    """Broken: each line would come twice, or not where the program's lines go."""
    script = (
        "import logging, sys\n"
        "logging.basicConfig(stream=sys.stdout, format='mine %(name)s %(message)s')\n"
        "from hocket import logs\n"
        "logs.apply('store=debug')\n"
        "logging.getLogger('hocket.store').debug('heard')\n"
        "logging.getLogger('hocket.run').info('unheard')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=clean_environment(),
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("mine hocket.store heard\n", "")


def test_nothing_changes_unless_asked_for():
    """Broken: importing or joining would configure `logging` behind a program's back."""
    before = logging.getLogger("hocket").level, list(logging.getLogger("hocket").handlers)
    logs.apply(None)
    assert (logging.getLogger("hocket").level, logging.getLogger("hocket").handlers) == before
