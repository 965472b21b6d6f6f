"""Program of a rank that calls a function: `python -m hocket.tools.run.rank FOLDER`; what it returned or raised goes there, too."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import cloudpickle

from hocket.artefacts.writing import replacing
from hocket.errors import UsageError

FUNCTION, RESULT, ERROR = "function.pickle", "result-{rank}.pickle", "error-{rank}.pickle"


class Call(NamedTuple):
    """Function to call, with its arguments."""

    function: Callable[..., object]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def main(folder: Path, rank: int) -> None:
    """Call the function of the folder as this rank, and leave its result there. Its exceptions are raised."""
    call: Call = pickle.loads((folder / FUNCTION).read_bytes())  # noqa: S301  # the launcher wrote it
    try:
        data = _pickled(call.function(*call.args, **call.kwargs), rank)
    except Exception as error:
        _leave_error(folder / ERROR.format(rank=rank), error)
        raise
    with replacing(folder / RESULT.format(rank=rank)) as file:
        file.write_bytes(data)


def _pickled(result: object, rank: int) -> bytes:
    try:
        return cast("bytes", cloudpickle.dumps(result))
    except Exception as error:
        raise UsageError(
            f"what the function returned on rank {rank} cannot be pickled: {type(error).__name__}: {error}\n"
            "hint: return tensors, numbers, text, or containers of these; a `state_dict` in place of a session"
        ) from error


def _leave_error(file: Path, error: Exception) -> None:
    """Leave an exception, if it survives pickling: many that have arguments of their own do not."""
    try:
        data = cloudpickle.dumps(error)
        pickle.loads(data)  # noqa: S301  # made in the line before
    except Exception:  # a class of the user's may raise anything; its text is on standard error
        return
    with replacing(file) as partial:
        partial.write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(os.environ["HOCKET_RANK"]))
