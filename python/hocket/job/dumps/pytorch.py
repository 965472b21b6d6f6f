"""Format of PyTorch's flight recorder, as `python -m torch.distributed.flight_recorder.fr_trace` reads it: a pickle of plain data.

Its words are those of `torch/csrc/distributed/c10d/FlightRecorder.hpp` (PyTorch 2.15).
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hocket.job.dumps.calls import Call, Calls, Group

VERSION = "2.10"
LIBRARY = "c10d"
"""Communication library in the names of calls: the word for those that `fr_trace` does not know by name."""
PICKLE = 2
"""Protocol of pickles that PyTorch writes."""


def pickled(of: Sequence[Calls], more: Mapping[str, Any]) -> bytes:
    """Return the dump of a rank. `more`: what else is known of it, which `fr_trace` ignores."""
    groups = {group.name: group for each in of for group in each.groups}
    calls = [call for each in of for call in each.calls]
    # PyTorch's times are of the wall clock, which may be set meanwhile: all are by what it says now.
    since_ns = round(datetime.now(UTC).timestamp() * 1e9) - time.monotonic_ns()
    return pickle.dumps(
        {
            "version": VERSION,
            "pg_config": {
                name: {"name": name, "desc": group.text, "ranks": str(list(group.ranks))}
                for name, group in groups.items()
            },
            "pg_status": {str(at): _status(group, calls) for at, group in enumerate(groups.values())},
            "entries": [
                _entry(call, list(groups).index(call.group), groups[call.group], since_ns) for call in calls
            ],
            "hocket": dict(more),
        },
        PICKLE,
    )


def _status(group: Group, calls: Sequence[Call]) -> dict[str, str]:
    own = [call for call in calls if call.group == group.name]
    reached = {
        "last_enqueued_collective": ("scheduled", "started", "completed"),
        "last_started_collective": ("started", "completed"),
        "last_completed_collective": ("completed",),
    }
    return {
        what: str(max((call.number for call in own if call.state in states), default=-1))
        for what, states in reached.items()
    }


def _entry(call: Call, at: int, group: Group, since_ns: int) -> dict[str, Any]:
    ended = call.state == "completed"
    took_ns = None if call.started_ns is None or call.ended_ns is None else call.ended_ns - call.started_ns
    return {
        "record_id": call.record,
        "pg_id": at,
        "process_group": (group.name, group.text),
        "collective_seq_id": call.number,
        "p2p_seq_id": 0,
        "op_id": call.record,
        "profiling_name": f"{LIBRARY}:{call.what}",
        "time_created_ns": call.created_ns + since_ns,
        "time_discovered_started_ns": None if call.started_ns is None else call.started_ns + since_ns,
        "time_discovered_completed_ns": None if call.ended_ns is None else call.ended_ns + since_ns,
        "duration_ms": None if took_ns is None else took_ns * 1e-6,
        "input_sizes": [list(sizes) for sizes, _ in call.inputs],
        "input_dtypes": [dtype for _, dtype in call.inputs],
        "output_sizes": [list(sizes) for sizes, _ in call.outputs],
        "output_dtypes": [dtype for _, dtype in call.outputs],
        "state": call.state,
        "retired": ended,
        "timeout_ms": round(call.timeout_s * 1e3),
        "is_p2p": False,
        "frames": [{"name": name, "filename": file, "line": line} for name, file, line in call.frames],
    }
