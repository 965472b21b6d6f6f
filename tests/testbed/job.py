"""A job of two ranks on a testbed that all-reduces a few times, checks the sums and says what its connections were."""

import json
import secrets
import subprocess
import sys

TIMEOUT_S = 60
ELEMENTS = 1_500_000

RANK = f"""
import json, os, subprocess
import numpy as np
from hocket.artefacts.plan import AllReduce
from hocket.job.rendezvous import join
from hocket.planning.compile import all_reduce_program

def sent():
    found = json.loads(subprocess.run(["ip", "-s", "-j", "link"], capture_output=True, check=True).stdout)
    return {{each["ifname"]: each["stats64"]["tx"]["bytes"] for each in found}}

with join() as job:
    engine = job.engine()
    memory = engine.allocate({ELEMENTS} * 4)
    values = np.frombuffer(memory, np.float32)
    program = all_reduce_program(
        world=job.world, elements={ELEMENTS}, dtype="f32", op="sum", scale=1.0, route=AllReduce(algorithm="ring")
    )
    cards = json.loads(os.environ["TEST_CARDS"])
    number = engine.load(program, {{0: (memory, 0)}}, priority=0, label="bucket", cards=cards)
    before = sent()
    for step in range(4):
        values[:] = np.arange({ELEMENTS}) % 64 + job.rank + step
        engine.launch(number)
        engine.wait(number, {TIMEOUT_S})
        assert (values == 2 * (np.arange({ELEMENTS}) % 64) + 1 + 2 * step).all()
    after = sent()
    moved = {{name: after[name] - before.get(name, 0) for name in after}}
    sockets = subprocess.run(["ss", "-tinH"], capture_output=True, check=True, text=True).stdout
    print(json.dumps([job.addresses, moved, sockets]))
    job.store.gather("done", job.rank, job.world, 0, {TIMEOUT_S})
    engine.close()
"""


def ranks(bed, interfaces, *, store=None, cards=None, **settings):
    """By rank: the addresses of its wire, bytes sent by interface, what the kernel says of its connections. `cards`: those that the
    program may use."""
    secret = secrets.token_hex(32)
    store = store or f"{bed.address('a')}:29400"
    made = [
        bed.popen(
            host,
            [
                "env",
                f"HOCKET_RANK={rank}",
                "HOCKET_WORLD=2",
                f"HOCKET_STORE={store}",
                f"HOCKET_SECRET={secret}",
            ]
            + [
                f"HOCKET_HOST={host}",
                f"HOCKET_INTERFACE={interfaces[rank]}",
                f"TEST_CARDS={json.dumps(cards)}",
            ]
            + [f"{name}={value}" for name, value in settings.items()]
            + [sys.executable, "-c", RANK],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, host in enumerate("ab")
    ]
    said = [process.communicate(timeout=TIMEOUT_S) for process in made]
    assert [process.returncode for process in made] == [0, 0], said
    return [json.loads(out) for out, _ in said]
