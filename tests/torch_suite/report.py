"""`make test-torch`: runs PyTorch's distributed tests for our backend under each name, and lists what none of them ran.

Exit code 1 when a test fails. Writes docs/torch-tests.md. Each name takes some minutes.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import torch

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "torch-tests.md"
NAMES = ("hocket", "gloo", "mpi")
TIMEOUT_S = 3600


def run(name: str, directory: Path) -> dict[str, tuple[str, str]]:
    """Outcome (passed, skipped, failed) and reason of each test."""
    results = directory / f"{name}.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:warnings",
        f"--junitxml={results}",
        "distributed.py",
    ]
    sys.stderr.write(f"PyTorch's distributed tests, those for `{name}`\n")
    ended = subprocess.run(
        command, cwd=HERE, env={**os.environ, "SUITE_AS": name}, check=False, timeout=TIMEOUT_S
    )
    if ended.returncode not in (0, 1):
        raise SystemExit(f"pytest ended with {ended.returncode}")
    outcomes = {}
    for case in ElementTree.parse(results).iter("testcase"):  # noqa: S314  # pytest wrote it just now
        problem = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        if problem is None:
            outcomes[case.attrib["name"]] = ("passed", "")
        else:
            kind = "skipped" if problem.tag == "skipped" else "failed"
            outcomes[case.attrib["name"]] = (kind, reason(problem.attrib.get("message", "")))
    return outcomes


def reason(message: str) -> str:
    """One line, the same in every run: sets of names are printed in any order."""
    line = message.strip().splitlines()[0] if message.strip() else "no reason given"
    return re.sub(
        r"\{([^}]*)\}", lambda found: ", ".join(sorted(found[1].replace("'", "").split(", "))), line
    )


def write(by_name: dict[str, dict[str, tuple[str, str]]]) -> None:
    """The document: numbers, failures, and every test that no name ran, by reason."""
    tests = sorted(next(iter(by_name.values())))
    passed = [test for test in tests if any(outcomes[test][0] == "passed" for outcomes in by_name.values())]
    failed = [
        (test, name) for test in tests for name, outcomes in by_name.items() if outcomes[test][0] == "failed"
    ]
    never = [test for test in tests if test not in passed and not any(test == each for each, _ in failed)]
    lines = [
        "# PyTorch's distributed tests",
        "",
        f"`make test-torch` with PyTorch {torch.__version__}: its own `distributed_test`, four processes a test, for the backend",
        "`hocket`; and again with those tests that are for `gloo` or `mpi` by name, run by our backend.",
        "This page is made by that command.",
        "",
        "| with those for | passed | skipped | failed |",
        "| --- | --- | --- | --- |",
    ]
    for name, outcomes in by_name.items():
        count = Counter(kind for kind, _ in outcomes.values())
        lines.append(f"| `{name}` | {count['passed']} | {count['skipped']} | {count['failed']} |")
    lines += [
        "",
        f"{len(passed)} of {len(tests)} tests pass under at least one name; {len(never)} run under none.",
        "",
    ]
    if failed:
        lines += [
            "## Failed",
            "",
            *(f"- `{test}` as `{name}`: {by_name[name][test][1]}" for test, name in failed),
            "",
        ]
    lines += ["## Skipped under every name", "", "| test | reason |", "| --- | --- |"]
    for test in never:
        # Under the last names it got further: what stops it there says more.
        reasons = dict.fromkeys(outcomes[test][1] for outcomes in reversed(list(by_name.values())))
        lines.append(f"| `{test}` | {'; '.join(reasons)} |")
    DOCUMENT.write_text("\n".join(lines) + "\n")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="hocket-torch-tests-") as directory:
        by_name = {name: run(name, Path(directory)) for name in NAMES}
    write(by_name)
    return int(any(kind == "failed" for outcomes in by_name.values() for kind, _ in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
