"""Test suites of other projects, run by pytest in processes of their own, and what became of each test."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

PASSED, SKIPPED, FAILED = KINDS = "passed", "skipped", "failed"
Outcomes = dict[str, tuple[str, str]]
"""Outcome (passed, skipped, failed) and reason of each test, by its class and name, `Class::test`."""


def outcomes_of(
    python: str,
    arguments: Sequence[str],
    *,
    results: Path,
    directory: Path,
    environment: Mapping[str, str],
    test_s: int,
    limit_s: float,
) -> Outcomes:
    """Run pytest of `python` in `directory`, with these variables added, and return outcomes.

    SystemExit: it did not end well. `results`: file to write; `test_s`: limit for a test; `limit_s`: for all.
    """
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:warnings",
        "-p",
        "no:cacheprovider",
        f"--junitxml={results}",
        f"--timeout={test_s}",
        "-o",
        f"faulthandler_timeout={test_s + 60}",
        *arguments,
    ]
    ended = subprocess.run(
        command,
        cwd=directory,
        # Some tests are numbered in the order of a set.
        env={**os.environ, "PYTHONHASHSEED": "0", **environment},
        check=False,
        timeout=limit_s,
    )
    if ended.returncode not in (0, 1):
        raise SystemExit(f"pytest ended with {ended.returncode}")
    found = {}
    for case in ElementTree.parse(results).iter("testcase"):  # noqa: S314  # pytest wrote it just now
        test = f"{case.attrib['classname'].rpartition('.')[2]}::{case.attrib['name']}"
        problem = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        if problem is None:
            found[test] = (PASSED, "")
        else:
            kind = SKIPPED if problem.tag == "skipped" else FAILED
            found[test] = (kind, reason(problem.attrib.get("message", "")))
    return found


def reason(message: str) -> str:
    """One line, the same in every run: sets of names are printed in any order."""
    line = message.strip().splitlines()[0] if message.strip() else "no reason given"
    return re.sub(
        r"\{([^}]*)\}", lambda found: ", ".join(sorted(found[1].replace("'", "").split(", "))), line
    )
