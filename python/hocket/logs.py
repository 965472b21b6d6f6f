"""Python's loggers of Hocket, and the levels that `HOCKET_LOG` gives them.

Warnings are shown without any setting, as Python does for programs that do not configure `logging`. A program that does has its own
handlers, and keeps them: then the levels count, and what it does with them.
"""

from __future__ import annotations

import difflib
import logging
import sys
import time

from hocket.errors import UsageError

ROOT = "hocket"
NAMES = {
    "autopilot": "plans that are tried and kept while a job trains",
    "builder": "users' builders, and searches that ask them",
    "cache": "files of compiled programs",
    "checkpoint": "state that is saved and restored",
    "choice": "the plan with which a job begins",
    "coordinator": "members that an elastic job gains and loses, as its launcher sees it",
    "delays": "merged and late gradients, and what guards them",
    "dumps": "what ranks had called when a job fails",
    "elastic": "steps and state of an elastic job, as ranks see it",
    "job": "how ranks meet and connect",
    "knowledge": "what earlier jobs have left",
    "live": "reports of ranks, and ranks that are late",
    "membership": "an elastic job's coordinator, as ranks see it",
    "metrics": "the endpoint for Prometheus",
    "profiler": "marks for PyTorch's profiler",
    "ray": "workers of Ray",
    "rendezvous": "connections to the store where ranks meet",
    "run": "the launcher",
    "store": "the store where ranks meet",
    "torch": "the PyTorch adapter, and the backend of `torch.distributed`",
    "trace": "traces that are written",
    "training": "models and steps",
}
"""Subjects of the loggers `hocket.NAME`."""
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def levels_of(text: str) -> dict[str, int]:
    """Return the level of each logger that `text` names; the one for all others is that of ``. UsageError: it is malformed.

    >>> levels_of("info"), levels_of("warning,store=debug")
    ({'': 20}, {'': 30, 'store': 10})
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, level = part.strip().rpartition("=")
        if level not in LEVELS:
            raise UsageError(f"HOCKET_LOG: {level!r} is no level\nhint: levels are {', '.join(LEVELS)}")
        if equals and name not in NAMES:
            close = difflib.get_close_matches(name, NAMES, 1)
            raise UsageError(f"HOCKET_LOG: {name!r} is no part of Hocket\nhint: {', '.join(close or NAMES)}")
        if name in found:
            raise UsageError(
                f"HOCKET_LOG: the level of {name or 'all'} is given twice\nhint: leave one of them out"
            )
        found[name] = LEVELS[level]
    return found


def apply(text: str | None) -> None:
    """Give loggers the levels of HOCKET_LOG, and a handler where the program has none; None: leave all as it is."""
    if text is None:
        return
    root = logging.getLogger(ROOT)
    for name, level in levels_of(text).items():
        logging.getLogger(f"{ROOT}.{name}" if name else ROOT).setLevel(level)
    if not root.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Format("{asctime} {name} {levelname}: {message}", style="{"))
        root.addHandler(handler)


class _Format(logging.Formatter):
    """Lines such as `12:03:04.567 hocket.run warning: …`, in local time."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  # logging's name
        """Return the time of day, in milliseconds."""
        del datefmt
        return f"{time.strftime('%H:%M:%S', time.localtime(record.created))}.{int(record.msecs):03d}"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the level as HOCKET_LOG has it."""
        record.levelname = record.levelname.lower()
        return super().format(record)
