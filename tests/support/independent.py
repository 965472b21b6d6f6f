"""What `tests/analysis/independent.py` says of DLC files, and what `hocket trace analyse --json` does, beside one another."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.commands import alone

SCRIPT = Path(__file__).parents[1] / "analysis/independent.py"
PARTS = ("computation", "pure_computation", "overlapped", "communication", "waiting")
TIMES = ("search", "synchronisation", "update")


def assert_equal_numbers(paths):
    """Fail unless each number of the independent script is in the analysis, for all workers and keys. Return the analysis."""
    script = alone([sys.executable, "-I", SCRIPT, *paths])
    assert script.returncode == 0, script.stderr
    said = json.loads(script.stdout)
    ended = alone([sys.executable, "-m", "hocket", "trace", "analyse", *paths, "--json"])
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert {str(each["node"]) for each in found["phases"]} == set(said["phases"])
    for each in found["phases"]:
        for part in PARTS:
            _same(each[part], said["phases"][str(each["node"])][part])
    keys = {(node, key) for node, own in said["keys"].items() for key in own}
    assert {(str(each["node"]), str(each["key"])) for each in found["keys"]} == keys
    for each in found["keys"]:
        for name in TIMES:
            _same(each[name], said["keys"][str(each["node"])][str(each["key"])][name])
    return found


def _same(found, said):
    assert (found is None) == (said is None)
    for name, value in (said or {}).items():
        assert found[name] == pytest.approx(value), name
