"""Client's end of the connection to the store: TLS, and in it the mutual proof of the secret. Every wait has a deadline."""

from __future__ import annotations

import contextlib
import select
import socket
import time

from hocket import _native
from hocket.errors import RendezvousError
from hocket.job.store import handshake

READ_BYTES = 1 << 16
POLL_MAX_S = 3600.0
"""Longest single wait; a longer one is split, since the system counts milliseconds in 31 bits."""


class Channel:
    """Channel for plain bytes in and out of a connected socket, which it closes."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._tls = _native.Tls(connects=True)
        self._held = b""

    def prove(self, secret: bytes, deadline_s: float, rank: int | None = None) -> None:
        """Shake hands, prove the secret, and check the server's proof. `rank`: told to a server that knows another secret.

        Raises:
            HandshakeError: the other side does not know the secret, or does not speak TLS.
            ConnectionError, TimeoutError: it hangs up, or sends nothing.
        """
        self.send(b"", deadline_s)
        while (binding := self._tls.binding) is None:
            try:
                self._held = self._tls.receive(self._read(deadline_s))
            except RendezvousError as error:
                raise handshake.HandshakeError(
                    f"it does not speak the protocol of Hocket's store, or another version of it ({error})"
                ) from None
            self.send(b"", deadline_s)
        connector = handshake.Connector(secret, binding)
        self.send(connector.hello(), deadline_s)
        magic = self._exactly(len(handshake.MAGIC), deadline_s)
        handshake.check_magic(magic)
        challenge = magic + self._exactly(handshake.CHALLENGE_BYTES - len(magic), deadline_s)
        try:
            proof = connector.handle_challenge(challenge)
        except handshake.OtherSecretError:
            # The others must learn at once for which rank they wait in vain.
            with contextlib.suppress(OSError):
                self.send(handshake.stranger(rank), deadline_s)
            raise
        self.send(proof, deadline_s)
        self._exactly(len(handshake.WELCOME), deadline_s)

    def send(self, data: bytes, deadline_s: float) -> None:
        """Send all of `data`, and the session's own pending records."""
        unsent = memoryview(self._tls.send(data))
        while unsent:
            self._socket.settimeout(remaining_s(deadline_s))
            with contextlib.suppress(TimeoutError):  # the next turn checks the deadline
                unsent = unsent[self._socket.send(unsent) :]

    def receive(self, deadline_s: float) -> bytes:
        """Receive at least one byte.

        Raises:
            ConnectionError, TimeoutError: the other side hung up, or sends nothing.
            RendezvousError: the data was changed on its way.
        """
        while not self._held:
            self._held = self._tls.receive(self._read(deadline_s))
        plain, self._held = self._held, b""
        return plain

    def arrived(self, timeout_s: float) -> bytes:
        """Return data that has arrived within at most this time, possibly none.

        Raises:
            ConnectionError: the other side hung up.
            RendezvousError: the data was changed on its way.
        """
        if not self._held and select.select([self._socket], [], [], timeout_s)[0]:
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionAbortedError("it closed the connection")
            self._held = self._tls.receive(data)
        plain, self._held = self._held, b""
        return plain

    def hang_up(self) -> None:
        """Tell a thread that sends or receives that the connection has ended."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int, deadline_s: float) -> bytes:
        data = b""
        while len(data) < size:
            data += self.receive(deadline_s)
        data, self._held = data[:size], data[size:]
        return data

    def _read(self, deadline_s: float) -> bytes:
        while True:
            self._socket.settimeout(remaining_s(deadline_s))
            with contextlib.suppress(TimeoutError):  # the next turn checks the deadline
                data = self._socket.recv(READ_BYTES)
                break
        if not data:
            raise ConnectionAbortedError("it closed the connection")
        return data


def remaining_s(deadline_s: float) -> float:
    """Return the seconds until a deadline on the monotonic clock, at most POLL_MAX_S; TimeoutError when it has passed."""
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return min(left_s, POLL_MAX_S)
