"""One rank of a test of the quick look: `quick_rank.py FILE`. Rank 0 writes what was found, and how long it took, to FILE."""

import sys
import time
from pathlib import Path

import msgspec

from hocket.job.rendezvous import join
from hocket.measure.quick import quick


def main():
    with join() as job:
        engine = job.engine()
        began_s = time.monotonic()
        found = quick(job, engine)
        took_s = time.monotonic() - began_s
        everyone = job.store.gather("found", job.rank, job.world, msgspec.to_builtins(found), 60)
        assert all(each == everyone[0] for each in everyone)
        if job.rank == 0:
            Path(sys.argv[1]).write_bytes(msgspec.json.encode({"cluster": found, "took_s": took_s}))
        engine.close()


main()
