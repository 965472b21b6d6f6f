"""`hocket report --live`: who may read it, what it says of a job from begin to end, and wrong input."""

from __future__ import annotations

import base64
import http.client
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.processes import told
from tests.live.jobs import Job
from tests.report.served import Served, until
from tests.support.synthetic import SyntheticRun, write_trace

TOKEN = secrets.token_hex(16)


def get(served: Served, path: str = "/", **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers of an answer."""
    connection = http.client.HTTPConnection(served.address.removeprefix("http://").rstrip("/"), timeout=60)
    try:
        connection.request(
            "GET", path, headers={name.replace("_", "-"): each for name, each in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.headers)
    finally:
        connection.close()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "trace", SyntheticRun(steps=6))


@pytest.fixture
def served(tmp_path: Path, trace: Path) -> Iterator[Served]:
    made = Served(tmp_path, trace)
    yield made
    if made.process.poll() is None:
        made.end()


def test_a_page_that_has_not_changed_is_not_sent_again(served: Served, trace: Path) -> None:
    """Broken: each reader would fetch megabytes a second."""
    status, page, headers = get(served)
    assert (status, "<h1>" in page, int(headers["Refresh-After-Ms"]) >= 1000) == (200, True, True)
    assert get(served, If_None_Match=headers["ETag"])[:2] == (304, "")
    write_trace(trace, SyntheticRun(steps=9))
    until(lambda: get(served, If_None_Match=headers["ETag"])[0] == 200)
    assert get(served, "/etc/passwd")[0] == 404


def test_pages_of_the_web_cannot_read_it(served: Served) -> None:
    """Broken: a web page whose name is made to lead to 127.0.0.1 would read what the job does."""
    assert get(served, Host="evil.example:80")[0] == 403
    port = served.address.rpartition(":")[2].rstrip("/")
    assert get(served, Host=f"localhost:{port}")[0] == 200


def test_beyond_loopback_a_token_is_needed(tmp_path: Path, trace: Path) -> None:
    """Broken: everybody in the network could read what a job does; or nobody, in a browser, which asks for a password."""
    served = Served(tmp_path, trace, "--at", "0.0.0.0:0", HOCKET_REPORT_TOKEN=TOKEN)
    served.address = served.address.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
    try:
        status, text, headers = get(served)
        assert (status, headers["WWW-Authenticate"].partition(" ")[0]) == (401, "Basic")
        assert "HOCKET_REPORT_TOKEN" in text
        wrong, right = (base64.b64encode(f"me:{each}".encode()).decode() for each in ("0" * 16, TOKEN))
        assert get(served, Authorization=f"Basic {wrong}")[0] == 401
        assert get(served, Authorization="Basic ?")[0] == 401
        assert get(served, Authorization=f"Basic {right}")[0] == 200
        assert get(served, Authorization=f"Bearer {TOKEN}", Host="elsewhere:80")[0] == 200
    finally:
        served.end()


def test_a_job_from_its_begin_to_its_end(tmp_path: Path) -> None:
    """Broken: a reader would see nothing until the job has ended, or would not learn that it has."""
    pytest.importorskip("torch")
    trace = tmp_path / "trace"
    with Job(tmp_path, "slow loader", "-n", "4", "--trace", str(trace)) as job:
        until(lambda: "no job of yours" not in job.top("--once")[2])
        served = Served(tmp_path, None)
        try:
            page = until(
                lambda: (text := get(served)[1]) and "rank 2 on" in text and "a step" in text and text
            )
            assert "The job runs." in page
            until(lambda: "wait" in (text := get(served)[1]) and "of each step for rank 2" in text)
            code, out, _ = told(tmp_path, "report", str(trace), "--live", "--json")
            assert (code, out) == (2, "")
            job.end()
            page = until(lambda: (text := get(served)[1]) and "The job has ended" in text and text)
            assert "What do the ranks do now?" not in page
            assert "What did it take of the machines?" in page
            code, _, errors = served.end()
            assert (code, "the page is final" in errors) == (0, True), errors
        finally:
            if served.process.poll() is None:
                served.end()
    code, _, errors = told(tmp_path, "report", "--live")
    assert (code, "no job of yours runs" in errors) == (2, True), errors


def test_a_job_without_a_trace_is_named(tmp_path: Path) -> None:
    """Broken: its user would be told that no job runs."""
    pytest.importorskip("torch")
    with Job(tmp_path, "plain", "-n", "2") as job:
        until(lambda: job.top("--once")[0] == 0)
        code, _, errors = told(tmp_path, "report", "--live")
    assert (code, "hocket run --trace DIR" in errors, "hocket top" in errors) == (2, True, True), errors


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{old}", "--live"), "hint: `hocket report {old}` shows what is there"),
        (("{none}", "--live"), "is not a directory"),
        (("{old}", "--live", "--at", "{taken}"), "another job or program may use the port"),
        (("{old}", "--live", "--at", "0.0.0.0:0"), "hint: HOCKET_REPORT_TOKEN="),
        (("{old}", "--live", "--at", "nine"), "not of the form"),
        (("{old}", "--live", "-o", "x.html"), "leave --json and -o out"),
        (("{old}", "--at", "80"), "give --live as well"),
        ((), "Missing argument 'DIR'"),
    ],
)
def test_wrong_input_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    """Broken: a page that never changes would be served, or a traceback shown."""
    old = write_trace(tmp_path / "old", SyntheticRun(steps=2))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        names = {"old": old, "none": tmp_path / "none", "taken": taken.getsockname()[1]}
        code, out, errors = told(tmp_path, "report", *(word.format(**names) for word in words))
    assert (code in (1, 2), out, "Traceback" in errors) == (True, "", False), errors
    assert said.format(**names) in errors
