"""Control groups of a process in a container, as files."""

from collections.abc import Mapping
from pathlib import Path


def grouped(system: Path, own: str, limits: Mapping[str, object]) -> None:
    """Write what a process in the groups `own` finds in `system`; `limits`: by file below the groups' folder."""
    for name, text in {
        "proc/self/cgroup": own,
        **{f"sys/fs/cgroup/{each}": limits[each] for each in limits},
    }.items():
        (system / name).parent.mkdir(parents=True, exist_ok=True)
        (system / name).write_text(f"{text}\n")
