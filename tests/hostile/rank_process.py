"""A rank in a process of its own, of a job whose ranks are told each other's addresses.

`python rank_process.py RANK JOB SECRET HOSTS STEPS [ELEMENTS] [WIRE]` prints its address, reads all of them,
adds up STEPS times and prints each step, or the error that ends it."""

import sys
import time

import numpy as np

from hocket import Error, _native
from hocket.artefacts.plan import AllReduce
from hocket.planning.compile import all_reduce_program

CONNECT_S = 4.0
WAIT_S = 30.0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    rank, job, secret, hosts, steps = (
        int(sys.argv[1]),
        sys.argv[2],
        sys.argv[3],
        sys.argv[4].split(","),
        int(sys.argv[5]),
    )
    elements = int(sys.argv[6]) if len(sys.argv) > 6 else 5000
    engine = _native.Engine(
        rank=rank,
        world=len(hosts),
        job=job,
        secret=secret.encode(),
        host=hosts[rank],
        bind=["127.0.0.1"],
        wire=sys.argv[7] if len(sys.argv) > 7 else "tcp",
    )
    say(engine.addresses[0])
    peers = zip(sys.stdin.readline().split(), hosts, strict=True)
    engine.connect([([address], host) for address, host in peers], CONNECT_S)
    program = all_reduce_program(
        world=len(hosts),
        elements=elements,
        dtype="f32",
        op="sum",
        scale=1.0,
        route=AllReduce(algorithm="ring"),
    )
    memory = engine.allocate(4 * elements)
    values = np.frombuffer(memory, np.float32)
    number = engine.load(program, {0: (memory, 0)}, priority=0, label="bucket 7")
    for step in range(steps):
        values[:] = rank + step
        engine.launch(number)
        engine.wait(number, WAIT_S)
        assert (values == sum(range(len(hosts))) + step * len(hosts)).all()
        say(f"step {step}")
        time.sleep(0.01)
    engine.close()
    say("done")


if __name__ == "__main__":
    try:
        main()
    except Error as error:
        sys.exit(f"{type(error).__name__}: {error}")
