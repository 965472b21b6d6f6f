"""What tests of jobs with a culprit share: the script, and what survivors say of each kind of culprit, as data."""

from pathlib import Path

import benches.culprits
from benches.culprits.notes import Read

SCRIPT = Path(benches.culprits.__file__).with_name("rank.py")
WORLD = 3
BLAMED = {
    "caught": ("left", 1),
    "sys.exit(3)": ("left", 3),
    "raise SystemExit(4)": ("left", 4),
    "os._exit(5)": ("lost", None),
    "SIGKILL": ("lost", None),
    "SIGSEGV": ("lost", None),
    "out of memory": ("lost", None),
    "SIGSTOP": ("silent", None),
    "loop": ("timeout", None),
    "native": ("timeout", None),
    "early end": ("left", 0),
    "late loader": ("timeout", None),
}
"""Why, and the exit code, if it is known; all others give up."""

WAITED_FOR = ("SIGSTOP", "loop", "native", "late loader")
"""The others know of these only when their patience ends; of all else they are told, however long Python takes to end."""


def patience_s(kind):
    """Time-out of a job with such a culprit."""
    return 3 if kind in WAITED_FOR else 60


def blamed(directory, rank):
    """Whom a survivor's error names, why, and with which exit code."""
    error = Read(directory).error(rank)
    return None if error is None else (error.rank, error.why, error.exit_code)
