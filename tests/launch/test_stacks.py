"""Frames of other threads, whatever garbage there is."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from hocket.stacks import frame_of

LIMIT_S = 60
SCRIPT = """
import gc, threading, weakref
from hocket.stacks import frame_of

class Node: pass

def garbage():
    node = Node()
    node.self = node
    weakref.finalize(node, lambda: threading.Thread(target=int).start())

gc.disable()
for _ in range(100):
    garbage()
gc.set_threshold(1)
{before}
for _ in range(100):
    frame_of(threading.main_thread().ident)
    assert gc.isenabled() is {enabled}
"""


def test_the_frame_is_that_of_the_thread() -> None:
    """Broken: a dump shows another thread's stack."""
    begun, end = threading.Event(), threading.Event()

    def waits() -> None:
        begun.set()
        end.wait(LIMIT_S)

    thread = threading.Thread(target=waits)
    thread.start()
    assert begun.wait(LIMIT_S)
    frame = frame_of(thread.ident)
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    assert "waits" in names
    end.set()
    thread.join()
    assert frame_of(None) is None


@pytest.mark.parametrize(("before", "enabled"), [("gc.enable()", True), ("", False)])
def test_a_finalizer_that_starts_a_thread_does_not_stop_the_process(before: str, enabled: bool) -> None:
    """Broken: Python 3.11 collects garbage under a lock that new threads need, and the process stands still for ever; or a script
    that has turned the collector off finds it on."""
    script = SCRIPT.format(before=before, enabled=enabled)
    ended = subprocess.run([sys.executable, "-c", script], timeout=LIMIT_S, check=False)
    assert ended.returncode == 0
