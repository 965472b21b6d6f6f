"""Client of `warm`: takes the place of a script that a forked process runs for it. Each rank has one, so it imports little."""

import json
import os
import signal
import socket
import sys
from contextlib import suppress

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NAMESPACES = ("user", "net")
"""Namespaces in which a testbed's hosts differ, in the order in which a process may enter them."""


def ask(folder: str, argv: list[str]) -> None:
    """Have the script run, and end as it does."""
    server = socket.socket(socket.AF_UNIX)
    rank = int(os.environ.get("HOCKET_RANK") or os.environ.get("RANK", "0"))
    server.connect(f"{folder}/{rank % sum(name.isdigit() for name in os.listdir(folder))}")  # noqa: PTH208
    request = {"argv": argv, "environment": dict(os.environ), "directory": os.getcwd()}  # noqa: PTH109
    request["namespaces"] = NAMESPACES
    text = json.dumps(request).encode()
    namespaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in NAMESPACES]
    socket.send_fds(server, [len(text).to_bytes(8, "big")], [1, 2, *namespaces])
    server.sendall(text)
    answers = server.makefile()
    process = int(answers.readline())

    def pass_on(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(process, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    code = int(answers.readline())
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler to take away
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    ask(sys.argv[1], sys.argv[2:])
