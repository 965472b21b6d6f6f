"""Progress bars under `hocket run` in a terminal, beside the same ones alone."""

import os
import re
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

from tests.clients.bars_job import STEP_S, STEPS
from tests.clients.jobs import HERE, IMPORTED, LIMIT_S
from tests.support import warm

SCRIPT = HERE / "bars_job.py"
RANKS = 2
COUNTED = re.compile(rf"\b(\d+)/{STEPS}\b")
BARS = {"tqdm": "%|", "trainer": "%|", "lightning": "━"}


class Seen:
    """A program on a terminal, and when what was to be read there."""

    def __init__(self, argv, place):
        own, end = os.openpty()
        termios.tcsetwinsize(end, (40, 120))
        place.mkdir()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOCKET_")},
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": "1",
            "TERM": "xterm-256color",
        }
        self.process = subprocess.Popen(
            argv, stdout=end, stderr=end, env=environment, cwd=place, start_new_session=True
        )
        os.close(end)
        self.reads, self.text, self.at_s = own, "", {}

    def read(self):
        """Text that has come; nothing at the end."""
        try:
            data = os.read(self.reads, 1 << 16)
        except OSError:
            return False
        self.text += data.decode(errors="replace")
        for drawn in COUNTED.findall(self.text):
            self.at_s.setdefault(int(drawn), time.monotonic())
        return True


def until_they_end(programs):
    """Read all of them, and wait for their ends."""
    still, deadline_s = {each.reads: each for each in programs}, time.monotonic() + LIMIT_S
    try:
        while still:
            assert time.monotonic() < deadline_s, [each.text for each in still.values()]
            for ready in select.select([*still], [], [], 1.0)[0]:
                if not still[ready].read():
                    del still[ready]
        for each in programs:
            assert each.process.wait(LIMIT_S) == 0, each.text
    finally:
        for each in programs:
            os.close(each.reads)
            if each.process.poll() is None:
                os.killpg(each.process.pid, signal.SIGKILL)
                each.process.wait()


@pytest.mark.parametrize("bar", BARS)
def test_bars_move_as_they_do_alone(bar, tmp_path):
    """Broken: a training of hours would show nothing, or its bar only when it is over."""
    alone = Seen(warm.command(SCRIPT, bar, "1", imports=IMPORTED, servers=1), tmp_path / "alone")
    launched = warm.hocket("run", "-n", str(RANKS), str(SCRIPT), bar, str(RANKS), imports=IMPORTED, servers=1)
    ours = Seen(launched, tmp_path / "ours")
    until_they_end([alone, ours])
    for seen in (alone, ours):
        assert BARS[bar] in seen.text, seen.text
        drawn_s = [seen.at_s[drawn] for drawn in sorted(seen.at_s)]
        assert len(drawn_s) >= STEPS // 4, seen.text
        assert seen.text.count("\r") >= len(drawn_s), seen.text
        # What is held until the end comes at once.
        assert drawn_s[-1] - drawn_s[0] > STEPS * STEP_S / 2, seen.text
    assert len(ours.at_s) >= len(alone.at_s) / 2, ours.text
    assert "[0]" in ours.text
