"""`hocket.run`: a function as the ranks of a job on this machine, from a program or a notebook."""

from __future__ import annotations

import codecs
import io
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar, cast

import cloudpickle

from hocket.artefacts.promise import Promise
from hocket.errors import PeerError, UsageError
from hocket.start.outcome import Outcome
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.tools.run.checks import check, settings_of
from hocket.tools.run.rank import ERROR, FUNCTION, RESULT, Call

Result = TypeVar("Result")
Where = str | os.PathLike[str]

CALLER = ("-m", "hocket.tools.run.rank")


def run(
    function: Callable[..., Result],
    *,
    n: int,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    plan: Where | None = None,
    promise: Promise | str | None = None,
    policy: str | None = None,
    search: str | None = None,
    cluster: Where | None = None,
    tuning: Where | None = None,
    trace: Where | None = None,
    threads: int | None = None,
    timeout_s: float | None = None,
    quiet_others: bool = False,
) -> list[Result]:
    """Call `function(*args, **kwargs)` on `n` ranks of one job, processes of this machine, and return what each returned, by rank.

    The function begins as a training script does: `hk.distribute` or `torch.distributed.init_process_group` inside finds the
    job. It may be one of a notebook or of a program's `__main__`; what it uses of there travels with it (cloudpickle). Each
    process has imported nothing yet, and no device is in use there. Output appears as under `hocket run`, with `[rank]` before
    each line. Ctrl-C, or a notebook's interrupt, ends all ranks.

    Args:
        function: called on every rank.
        n: ranks.
        args, kwargs: the function's arguments, equal on all ranks.
        plan, promise, policy, search, cluster, tuning, trace, threads, timeout_s: as for `hocket run`; default: from the
            environment.
        quiet_others: show rank 0's output alone, as it is.

    Raises:
        PeerError: a rank failed: the exception that it raised, if that can be pickled, is the cause (`__cause__`).
        UsageError: function, arguments or results cannot be pickled, or this process is a rank itself.
        ArtefactError: plan, cluster or tuning is not valid.
        KeyboardInterrupt: Ctrl-C, after all ranks have ended.

    >>> import os
    >>> def place():
    ...     return os.environ["RANK"], os.environ["WORLD_SIZE"]
    >>> run(place, n=2)
    [('0', '2'), ('1', '2')]
    """
    if n < 1:
        raise UsageError(f"n={n}: a job has at least one rank")
    given: dict[str, Any] = {
        "plan": plan,
        "promise": None if promise is None else str(promise),
        "policy": policy,
        "search": search,
        "cluster": cluster,
        "tuning": tuning,
        "trace": trace,
        "threads": threads,
        "timeout_s": timeout_s,
    }
    settings = settings_of(given)
    if settings.rank is not None:
        # A module that calls this as it is imported would start ever more jobs, as each rank imports it.
        raise UsageError(
            f"hocket.run was called in rank {settings.rank} of a job\n"
            'hint: call it under `if __name__ == "__main__":`, and not in a script under `hocket run`'
        )
    check(settings, given, here=True)
    if settings.besides:
        raise UsageError(
            "hocket.run starts no servers and no helpers\nhint: use `hocket run`, or unset the variable"
        )
    call = _pickled(Call(function, tuple(args), dict(kwargs or {})))
    with tempfile.TemporaryDirectory(prefix="hocket-run-") as name:
        folder = Path(name)
        (folder / FUNCTION).write_bytes(call)
        spec = ProcessSpec(
            argv=[sys.executable, *CALLER, name],
            environment={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        outcome = launch(
            [spec] * n,
            settings=settings,
            quiet_others=quiet_others,
            out=_bytes_to(sys.stdout),
            err=_bytes_to(sys.stderr),
        )
        _raise_failure(outcome, folder)
        return [cast("Result", _result(folder, rank)) for rank in range(n)]


def _pickled(call: Call) -> bytes:
    try:
        return cast("bytes", cloudpickle.dumps(call))
    except (TypeError, ValueError, AttributeError, pickle.PicklingError, RecursionError) as error:
        raise UsageError(
            f"the function or its arguments cannot travel to the ranks: {type(error).__name__}: {_first_line(error)}\n"
            "hint: make within the function what cannot be pickled: connections, locks, open files, generators"
        ) from error


def _raise_failure(outcome: Outcome, folder: Path) -> None:
    """Raise PeerError if a rank failed, from the exception that it raised."""
    if not outcome.failures:
        return
    first = outcome.failures[0]
    cause = None
    if (file := folder / ERROR.format(rank=first.rank)).exists():
        cause = pickle.loads(file.read_bytes())  # noqa: S301  # a rank of ours wrote it into a directory of this user alone
    error = first.error(str(first))
    raise error from cause


def _result(folder: Path, rank: int) -> Any:
    file = folder / RESULT.format(rank=rank)
    if not file.exists():
        raise PeerError(
            f"rank {rank} ended with exit code 0, but its function did not return",
            rank=rank,
            host=None,
            why="left",
        )
    return pickle.loads(file.read_bytes())  # noqa: S301  # as above


def _bytes_to(text: TextIO) -> BinaryIO:
    """Return the stream's bytes; notebooks and other hosts of Python have streams of text alone."""
    found = getattr(text, "buffer", None)
    return cast("BinaryIO", found if found is not None else _Encoded(text))


class _Encoded(io.RawIOBase):
    """Stream of bytes before a stream of text."""

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Pass the bytes on; those of a character that is not complete wait for the rest."""
        self._text.write(self._decoder.decode(bytes(data)))
        return len(data)

    def flush(self) -> None:
        """Pass on what the text stream holds."""
        self._text.flush()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]
