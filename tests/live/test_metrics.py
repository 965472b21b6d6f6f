"""The metrics of a real job, scraped by Debian's Prometheus, and who may scrape them."""

import http.client
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

import pytest

from hocket.errors import RendezvousError, UsageError
from hocket.job.live.endpoint import Endpoint
from hocket.job.live.observer import Observer
from tests.launch.processes import clean_environment, finish, told, write
from tests.live.jobs import CULPRIT, DEADLINE_S, WORLD, Job

pytestmark = pytest.mark.tools

pytest.importorskip("prometheus_client")

MONITORING = Path(__file__).parents[2] / "examples" / "monitoring"
TOKEN = secrets.token_hex(16)
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="no prometheus here: the package prometheus",
)


@pytest.fixture
def port():

    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return reserved.getsockname()[1]


def get(port, path="/metrics", token=None, accept=None):
    """(status, text, content type)."""
    headers = {"Authorization": f"Bearer {token}", "Accept": accept}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(
            "GET",
            path,
            headers={name: value for name, value in headers.items() if value and "None" not in value},
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers["Content-Type"]
    finally:
        connection.close()


def promtool(*words, given=None):
    done = subprocess.run(
        ["promtool", *words], input=given, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


@needs_prometheus
def test_prometheus_scrapes_a_job_and_knows_its_late_rank(tmp_path, port):
    """Broken: a dashboard would stay empty, or its names would be none that Prometheus takes."""
    variables = {"HOCKET_METRICS_TOKEN": TOKEN}
    with Job(tmp_path, "slow loader", "-n", str(WORLD), "--metrics", str(port), **variables) as job:
        job.looks(lambda each: each["blame"] is not None)
        assert get(port)[0] == 401
        assert get(port, token="0" * 20)[0] == 401
        assert get(port, "/", TOKEN)[0] == 404
        status, text, _ = get(port, token=TOKEN)
        assert status == 200, text
        assert promtool("check", "metrics", given=text) == (0, "")
        status, text, content = get(port, token=TOKEN, accept="application/openmetrics-text; version=1.0.0")
        assert (status, text.endswith("# EOF\n"), content.startswith("application/openmetrics-text")) == (
            200,
            True,
            True,
        )
        asked = Scraper(tmp_path, port)
        try:
            deadline_s = time.monotonic() + DEADLINE_S
            # Beside other work, another rank may be the last one for a moment.
            while {each["metric"]["rank"] for each in asked.query("hocket:late_rank")} != {str(CULPRIT)}:
                assert time.monotonic() < deadline_s, asked.log()
                time.sleep(0.2)
            steps = asked.query("hocket_steps_total")
            assert {each["metric"]["rank"] for each in steps} == {str(rank) for rank in range(WORLD)}
            assert asked.query("hocket_ranks")[0]["value"][1] == str(WORLD)
        finally:
            asked.close()


class Scraper:
    """Debian's Prometheus on the job's port, with the rules of the examples."""

    def __init__(self, folder, port):
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))
            self.port = reserved.getsockname()[1]
        (folder / "token").write_text(TOKEN)
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{MONITORING / 'rules.yml'}]\n"
            "scrape_configs:\n"
            "  - job_name: hocket\n"
            f"    authorization: {{credentials_file: {folder / 'token'}}}\n"
            f"    static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
        )
        self._log = folder / "prometheus.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
                env=clean_environment(),
            )

    def query(self, expression):
        """Result of a query; none while it starts."""
        path = "/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            status, text, _ = get(self.port, path)
        except OSError:
            status, text = 0, ""
        if status == 200:
            return json.loads(text)["data"]["result"]
        time.sleep(0.2)
        return []

    def log(self):
        return self._log.read_text()

    def close(self):
        self._process.terminate()
        self._process.wait(30)


@needs_prometheus
def test_rules_are_sound_and_alert_of_what_is_wrong():
    """Broken: Prometheus would not start with the rules, or an alert would never come."""
    code, said = promtool("check", "rules", str(MONITORING / "rules.yml"))
    assert (code, "SUCCESS" in said) == (0, True), said
    code, said = promtool("test", "rules", str(MONITORING / "rules-test.yml"))
    assert (code, "SUCCESS" in said) == (0, True), said


def test_the_dashboard_asks_for_what_there_is():
    """Broken: panels would be empty."""
    from prometheus_client.parser import text_string_to_metric_families

    from hocket.job.live.exposition import exposed
    from tests.live.test_blame import view

    job = view(4)
    text = exposed(job, "")[0].decode()
    families = list(text_string_to_metric_families(text))
    known = {sample.name for family in families for sample in family.samples}
    # The first has a sample for a late rank alone, the second in elastic jobs alone.
    known |= {"hocket_late", "hocket_goodput_ratio"}
    assert "hocket_late" in {family.name for family in families}
    rules = (MONITORING / "rules.yml").read_text()
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]

    assert len(expressions) > 5
    for expression in (*expressions, rules):
        names = set(re.findall(r"\bhocket_\w+", expression))
        assert names - known - {"hocket_hocket"} == set(), expression
        for recorded in re.findall(r"\bhocket:\w+", expression):
            assert f"record: {recorded}" in rules, recorded


@pytest.mark.parametrize(
    ("where", "token", "said"),
    [
        ("0.0.0.0:0", None, "scrapes need a token"),
        ("[::]:0", None, "scrapes need a token"),
        ("192.0.2.1:0", None, "scrapes need a token"),
        ("0.0.0.0:0", "short", "at least 16 characters"),
        ("0", "sixteen and more characters", "no spaces"),
        ("nine", None, "not of the form"),
        (":9400", None, "not of the form"),
        ("99999", None, "the largest is 65535"),
    ],
)
def test_a_place_that_is_none_or_open_to_others_is_refused(where, token, said):
    """Broken: everybody in the network could read what a job does, without its user's knowing."""
    with pytest.raises(UsageError, match=said) as raised:
        Endpoint(where, token, Observer(lambda: None))
    assert "hint:" in str(raised.value) or "form" in said or "largest" in said


def test_a_port_that_is_taken_is_named(port):
    """Broken: the job would run without metrics, or end in a traceback."""

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(RendezvousError, match=f"metrics cannot be served at {port}"):
            Endpoint(str(port), None, Observer(lambda: None))


def test_hocket_run_refuses_before_it_starts_ranks(tmp_path):
    """Broken: ranks would train for a while and then end."""
    script = write(tmp_path, "print('started')")
    code, out, err = told(tmp_path, "run", "-n", "2", "--metrics", "0.0.0.0:0", script)
    assert (code, out) == (2, ""), err
    assert "hint: HOCKET_METRICS_TOKEN=" in err


def test_without_a_launcher_s_store_rank_0_serves(tmp_path, port):
    """Broken: jobs of torchrun and mpirun would have no metrics."""

    script = write(
        tmp_path,
        "import sys, time\nfrom hocket.job.rendezvous import join\n"
        "with join() as job:\n    job.publish()\n    job.store.barrier('all', job.rank, job.world, 60)\n"
        "    sys.stdin.read() if job.rank == 0 else None\n    job.store.barrier('end', job.rank, job.world, 120)\n",
    )
    common = {
        "HOCKET_STORE": f"127.0.0.1:{port}",
        "HOCKET_WORLD": "2",
        "HOCKET_METRICS": "0",
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    processes = []
    for rank in (0, 1):
        environment = clean_environment(**common, HOCKET_RANK=str(rank))
        processes.append(
            subprocess.Popen(
                [sys.executable, script],
                env=environment,
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    try:
        for line in processes[0].stderr:
            if "metrics at " in line:
                break
        served = int(line.split()[-1].removesuffix("/metrics").rpartition(":")[2])
        deadline_s = time.monotonic() + DEADLINE_S
        while "hocket_reporting_ranks 2.0" not in (text := get(served)[1]):
            assert time.monotonic() < deadline_s, text
    finally:
        for each in processes:
            each.stdin.close()
            each.stdin = None
        ends = [finish(each, 60) for each in processes]
    assert [each[0] for each in ends] == [0, 0], ends
