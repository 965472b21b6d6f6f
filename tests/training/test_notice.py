"""SIGTERM to a rank of an elastic job, in real processes."""

import signal
import sys

import pytest

from tests.support.commands import completed

BEGIN = """
import os, signal, sys, time
from hocket.training.elastic.notice import Notice
def leave(): print("leaves", flush=True)
notice = Notice(leave)
"""
TERMINATE = "os.kill(os.getpid(), signal.SIGTERM)\n"


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        pytest.param(TERMINATE, 0, "leaves", id="the first leads to an orderly leave"),
        pytest.param(TERMINATE * 2, -signal.SIGTERM, "leaves", id="the second ends the process"),
        pytest.param("notice.end()\n" + TERMINATE, -signal.SIGTERM, "", id="none is heeded after the end"),
        pytest.param(
            "from multiprocessing import get_context\n"
            "context = get_context('fork')\n"
            "ready = context.Event()\n"
            "def work(): ready.set(); time.sleep(60)\n"
            "worker = context.Process(target=work)\n"
            "worker.start(); ready.wait(); worker.terminate(); worker.join()\n"
            "print(worker.exitcode)\n",
            0,
            "-15",
            id="a worker that loads data can be ended",
        ),
        pytest.param(
            "signal.signal(signal.SIGTERM, lambda *_: print('own'))\nnotice.end()\n" + TERMINATE,
            0,
            "own",
            id="the script's own handler, set later, is kept",
        ),
        pytest.param(
            "notice.end()\n"
            "signal.signal(signal.SIGTERM, lambda *_: print('own'))\nNotice(leave)\n" + TERMINATE,
            0,
            "own",
            id="the script's own handler, set before, is kept",
        ),
    ],
)
def test_a_notice(script: str, code: int, said: str) -> None:
    """Broken: a rank would die of a notice that it was given time with, or a process could not be ended any more."""
    ended = completed([sys.executable, "-c", BEGIN + script])
    assert (ended.returncode, ended.stdout.strip()) == (code, said), ended.stderr
