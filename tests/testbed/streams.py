"""A TCP stream between two hosts of a testbed, as scripts: the receiver prints bytes, and bit/s without the first half second."""

SEND = """
import socket, sys, time
there = socket.create_connection((sys.argv[1], 5555), 10)
ended = time.monotonic() + 1.5
while time.monotonic() < ended:
    there.sendall(bytes(65536))
"""
RECEIVE = """
import json, socket, time
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
print(json.dumps([(total - early) * 8 / (time.monotonic() - since), total]))
"""


def assert_rates(across_bit_per_s, within_bit_per_s, *, trunk_bit_per_s, link_bit_per_s):
    """Payload's rates over a trunk, and over links that are several times as fast, are those of these links."""
    # Never more, on any machine: of what passes 1448 of 1514 bytes are payload, which leaves room for the bucket's
    # 128 KiB, 2 % of a second at 50 Mbit/s.
    assert across_bit_per_s < 1.02 * trunk_bit_per_s
    assert within_bit_per_s < 1.02 * link_bit_per_s
    # A loaded machine carries less than the links would, so what is told is which link it was: half a trunk would be one
    # that is shaped twice, and twice a trunk is no trunk.
    assert across_bit_per_s > 0.5 * trunk_bit_per_s
    assert within_bit_per_s > 2 * trunk_bit_per_s
