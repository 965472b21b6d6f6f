"""Real jobs for these tests: what they train, and how they are looked at."""

import json
import signal
import time

from tests.launch.processes import finish, start, told, write
from tests.support import warm

WORLD, CULPRIT = 4, 2
DEADLINE_S = 120
LATE_S, LATE_FOR_S = "3", 6.0
"""`HOCKET_LATE_S`, for longer than a process of a busy machine may be kept from its core; and more than that and the interval of
reports."""

SCRIPT = f"""
import ctypes, os, sys, time, torch, hocket.torch as hk
torch.set_num_threads(1)
rank, kind = int(os.environ["RANK"]), sys.argv[1]
torch.manual_seed(rank)
model = torch.nn.Linear(16, 16)
model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=1e-4))

def load():
    if kind == "slow loader" and rank == {CULPRIT}:
        time.sleep(0.3)
    if kind == "slow batch" and rank == {CULPRIT} and step == 40:
        time.sleep({LATE_FOR_S})
    return torch.randn(2, 16)

for step in range(1_000_000):
    batch = load()
    optimizer.zero_grad()
    model(batch).square().sum().backward()
    optimizer.step()
    time.sleep(0.01)
    if kind == "all at once" and step == 40:
        time.sleep({LATE_FOR_S})
    if kind == "holds" and rank == {CULPRIT} and step == 40:
        nothing, writer = os.pipe()
        ctypes.PyDLL(None).read(nothing, ctypes.create_string_buffer(1), 1)
    if kind == "hangs" and rank == {CULPRIT} and step == 40:
        while True:
            time.sleep(0.01)
"""


class Job:
    """`hocket run` of the script, as a context. `place`: where jobs of the test are found, and no others."""

    def __init__(self, place, kind, *options, hosts="", **variables):
        self.place = place
        script = write(place, SCRIPT)
        variables = {"OMP_NUM_THREADS": "1", "HOCKET_LATE_S": LATE_S, **variables}
        self.process = start(warm.hocket("run", *options, script, kind), TMPDIR=str(place), **variables)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """(exit code, output, errors) after the launcher was told to end."""
        self.process.send_signal(signal.SIGTERM)
        return finish(self.process, 60)

    def top(self, *words):
        """Exit code, output and errors of `hocket top`."""
        return told(self.place, "top", *words)

    def looks(self, until):
        """Looks by `hocket top --once --json` until one is as wanted, which is the last."""
        seen = []
        deadline_s = time.monotonic() + DEADLINE_S
        while not seen or not until(seen[-1]):
            assert time.monotonic() < deadline_s, (seen[-1:], self.top("--once"))
            assert self.process.poll() is None, finish(self.process)
            code, out, err = self.top("--once", "--json")
            if code == 0:
                seen.append(json.loads(out))
            else:
                assert (code, "no job of yours runs" in err) == (2, True), err
        return seen

    def trains(self):
        """A look when all ranks have trained for some steps."""
        return self.looks(
            lambda each: (
                len(each["ranks"]) == WORLD
                and min(seen["status"]["steps"] for seen in each["ranks"].values()) > 20
            )
        )[-1]


def process_of(look, rank):
    return look["ranks"][str(rank)]["status"]["process"]
