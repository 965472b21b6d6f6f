"""Groups to which nothing refers any more: a thread leaves for them.

Python says so wherever it collects garbage, within any call of any thread. All that may be done there is to put into a
`SimpleQueue`, which is made for it: a new thread, or a lock, could be waited for by the call that was interrupted.
"""

from __future__ import annotations

import functools
import logging
import os
import queue
import threading
from collections.abc import Callable

Leave = Callable[[], None]

log = logging.getLogger("hocket.torch")


def leaving() -> Callable[[Leave], None]:
    """Return a function that a finalizer may call with what the thread is to call. The thread begins with the first use."""
    return _of_process(os.getpid())


@functools.cache
def _of_process(_number: int) -> Callable[[Leave], None]:
    due: queue.SimpleQueue[Leave] = queue.SimpleQueue()

    def life() -> None:
        while True:
            try:
                due.get()()
            except Exception:
                log.exception("hocket: a group to which nothing refers was not left in order")

    threading.Thread(target=life, name="hocket-dropped", daemon=True).start()
    return due.put
