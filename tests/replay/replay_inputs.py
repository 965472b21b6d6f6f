"""What the tests of replays have in common."""

from hocket.tools.formats import dlc

STEPS = 4
"""Of the run in virtual time that `trace` gives."""

WORKERS, ITERATIONS = 2, 4
COMPUTE_US = 20_000
SMALL = 20
SIZES = (500_000, 100_000)
UPDATE_US = 2_000


class ParameterServer:
    """A job of two workers and a server with two keys on a network of 100 Mbit/s each way, as its nodes would have recorded it."""

    def __init__(self):
        self.files = {node: [] for node in range(WORKERS + 1)}

    def record(self, node, *fields):
        src, dst, length, operation, key, num, peer, dep_type, time_us, waits = fields
        role = "w" if operation.endswith("Server") else "s"
        self.files[node].append(
            (time_us, src, dst, length, f"OP:= {operation}", f"{key}-{num}-{role}{peer}", dep_type, waits)
        )

    def iteration(self, at, begun_us):
        """Workers compute, push both keys, the server answers when both have, workers pull; when all have pulled."""
        server = WORKERS
        bases = [4 * at + (4 if worker == 0 else 2) for worker in range(WORKERS)]
        base = 4 * at + 2
        pushed_us = begun_us + COMPUTE_US
        ended_us = pushed_us
        for key, size in enumerate(SIZES):
            # All workers' pushes share the server's link.
            pushed_us_here = pushed_us
            landed_us = (pushed_us if key == 0 else ended_us) + WORKERS * size * 8 // 100
            for worker, own in enumerate(bases):
                waits = f"({own - 1}-s0.)" if at else "-1"
                self.record(
                    worker,
                    worker,
                    server,
                    size,
                    "Push_Send_Worker",
                    key,
                    own,
                    0,
                    4 if at else 0,
                    pushed_us_here,
                    waits,
                )
                self.record(
                    server, worker, server, size, "Push_Recv_Server", key, base, worker, 0, landed_us, "-1"
                )
            answered_us = landed_us + UPDATE_US
            both = "".join(f"{key}-{base}-w{worker}." for worker in range(WORKERS))
            pulled_us = answered_us + WORKERS * size * 8 // 100
            for worker, own in enumerate(bases):
                self.record(
                    server,
                    server,
                    worker,
                    SMALL,
                    "Push_Send_Server",
                    key,
                    base + 1,
                    worker,
                    1,
                    answered_us,
                    f"({both})",
                )
                self.record(
                    worker,
                    server,
                    worker,
                    SMALL,
                    "Push_Recv_Worker",
                    key,
                    own + 1,
                    0,
                    1,
                    answered_us,
                    f"{key}-{own}-s0",
                )
                self.record(
                    worker,
                    worker,
                    server,
                    SMALL,
                    "Pull_Send_Worker",
                    key,
                    own + 2,
                    0,
                    2,
                    answered_us,
                    f"{key}-{own + 1}-s0",
                )
                self.record(
                    server,
                    worker,
                    server,
                    SMALL,
                    "Pull_Recv_Server",
                    key,
                    base + 2,
                    worker,
                    0,
                    answered_us,
                    "-1",
                )
                self.record(
                    server,
                    server,
                    worker,
                    size,
                    "Pull_Send_Server",
                    key,
                    base + 3,
                    worker,
                    3,
                    answered_us,
                    f"{key}-{base + 2}-w{worker}",
                )
                self.record(
                    worker,
                    server,
                    worker,
                    size,
                    "Pull_Recv_Worker",
                    key,
                    own + 3,
                    0,
                    3,
                    pulled_us,
                    f"{key}-{own + 2}-s0",
                )
            ended_us = pulled_us
        return ended_us

    def write(self, folder):
        paths = []
        for node, rows in self.files.items():
            name = f"worker{node}.txt" if node < WORKERS else "server0.txt"
            lines = []
            for number, (time_us, src, dst, length, operation, op_id, dep_type, waits) in enumerate(
                sorted(rows, key=lambda row: row[0])
            ):
                fields = (
                    number,
                    src,
                    dst,
                    length,
                    1,
                    operation,
                    op_id,
                    dep_type,
                    0,
                    *divmod(1_500_000_000_000_000 + time_us, 10**6),
                    waits,
                )
                lines.append("\t".join(map(str, fields)) + "\n")
            paths.append(folder / name)
            paths[-1].write_bytes(
                dlc.Header.of(WORKERS, 1, "host", wall_clock=True).text + "".join(lines).encode()
            )
        return paths
