"""A TCP stream between two hosts of a testbed, as scripts: the receiver prints bit/s, without the first half second."""

SEND = """
import socket, sys, time
there = socket.create_connection((sys.argv[1], 5555), 10)
ended = time.monotonic() + 1.5
while time.monotonic() < ended:
    there.sendall(bytes(65536))
"""
RECEIVE = """
import socket, time
listening = socket.create_server(("", 5555))
print("listening", flush=True)
listening.settimeout(10)
here, _ = listening.accept()
began, early, total = None, 0, 0
while data := here.recv(1 << 20):
    now = time.monotonic()
    began = began or now
    total += len(data)
    if now - began < 0.5:
        early, since = total, now
print((total - early) * 8 / (time.monotonic() - since))
"""
