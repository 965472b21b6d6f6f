"""One host's sockets of a probe: latency of datagrams, and rates of trains or of plain TCP connections with its peers.

A `Station` listens on one port; every connection opens with a greeting that carries the job's token, and strangers'
connections are closed. It contacts only the peers' addresses that it was given. A `Meter` takes rates where bytes
arrive. The receiver ends a transfer by closing, so it ends in time however slow the link.
"""

from __future__ import annotations

import errno
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from hocket.errors import PeerError
from hocket.job.store import address as addresses
from hocket.tools.probe import datagrams, trains
from hocket.tools.probe.datagrams import TOKEN_BYTES, Trips
from hocket.tools.probe.meter import Meter
from hocket.tools.probe.options import LIMIT_BIT_PER_S
from hocket.tools.probe.pace import Pace
from hocket.tools.probe.quantile import Quantile

SILENCE_S = 5.0
"""Silence after which a peer is reported."""

PINGS_MIN = 10
"""Least number of round trips over TCP, if datagrams do not pass, whatever the time."""

PORTS_TRIED = 20
"""Attempts to find a port that is free for TCP and for UDP."""

_GREETING = struct.Struct(f"!8s{TOKEN_BYTES}sIII")
_MAGIC = b"hktprobe"
_PIECE_BYTES = 1 << 18
_PING_BYTES = 8


@dataclass(frozen=True)
class Peer:
    """Host of the job, with its address for others."""

    name: str
    address: str
    port: int


class Station:
    """The listening socket of one host, and the measurements that it takes part in.

    `me` is this host's index among `peers`, once `meet` has named them. Close it when done.
    """

    def __init__(self, address: str, token: bytes, *, limit_bit_per_s: float = LIMIT_BIT_PER_S) -> None:
        """Bind to a free port of `address` (an IP of this host). `token`: TOKEN_BYTES bytes that all hosts share.

        `limit_bit_per_s`: limit of datagrams on this host's link.
        """
        family = addresses.family(address)
        self._listener, self._datagrams = _both(family, address)
        self._listener.listen(128)
        self._token = token
        self._pace = Pace(limit_bit_per_s)
        self._peers: Sequence[Peer] = ()
        self._me = 0

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def meet(self, peers: Sequence[Peer], me: int) -> None:
        """Set the hosts, which measurements name by index."""
        self._peers = peers
        self._me = me

    def open(
        self,
        destinations: Mapping[int, int],
        sources: Mapping[int, int],
        step: int,
        far: Collection[int] = (),
    ) -> Links:
        """Open connections to and from these hosts, this many each, for one step of the probe.

        Connections to `far` hosts tolerate losses, like the wire's own.

        Raises PeerError naming the host that cannot be reached or does not connect.
        """
        links = Links(self._peers, self._me, self._datagrams, token=self._token, step=step, pace=self._pace)
        try:
            for destination, count in destinations.items():
                for lane in range(count):
                    link = self._connect(destination, step, lane)
                    if lane == 0:
                        links.out[destination] = link
                    else:
                        links.more_out.append((destination, link))
            for destination, link in (*links.out.items(), *links.more_out):
                _tune(link, far=destination in far)
            came = self._accept(
                {(source, lane) for source, count in sources.items() for lane in range(count)}, step
            )
            for (source, lane), link in came.items():
                if lane == 0:
                    links.into[source] = link
                else:
                    links.more_in.append((source, link))
        except BaseException:
            links.close()
            raise
        return links

    @contextmanager
    def answering(self, step: int) -> Iterator[None]:
        """Answer every request of this step, until the block ends."""
        done = threading.Event()
        args = (self._datagrams, self._token, step, done)
        thread = threading.Thread(target=datagrams.answer, args=args, name="hocket-answer", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def row(self, step: int, pair_s: float) -> dict[int, Trips]:
        """Measure round trips to every other host, the next ones first, over an own socket, since this host answers too.

        Raises PeerError naming a host that does not answer.
        """
        found = {}
        count = len(self._peers)
        with datagrams.listen(self._datagrams.family, self._peers[self._me].address, 0) as link:
            for other in ((self._me + away) % count for away in range(1, count)):
                peer = self._peers[other]
                trips = datagrams.ask(
                    link, (peer.address, peer.port), self._token, step, duration_s=pair_s, pace=self._pace
                )
                if trips is None:
                    raise PeerError(
                        f"probe: host {peer.name} at {peer.address} does not answer datagrams\n"
                        "hint: without --sample, TCP is asked where datagrams do not pass",
                        rank=other,
                        host=peer.name,
                    )
                found[other] = trips
        return found

    def close(self) -> None:
        self._listener.close()
        self._datagrams.close()

    def _connect(self, destination: int, step: int, lane: int) -> socket.socket:
        peer = self._peers[destination]
        here = self._peers[self._me].name
        link = None
        try:
            link = socket.create_connection((peer.address, peer.port), timeout=SILENCE_S)
            link.sendall(_GREETING.pack(_MAGIC, self._token, self._me, step, lane))
        except OSError as error:
            if link is not None:
                link.close()
            raise PeerError(
                f"probe: host {here} cannot reach host {peer.name} at {peer.address}:{peer.port}: {error}\n"
                "hint: hosts of a job must be able to open TCP connections to each other on any port",
                rank=destination,
                host=peer.name,
            ) from None
        return link

    def _accept(self, wanted: set[tuple[int, int]], step: int) -> dict[tuple[int, int], socket.socket]:
        """Accept the connections that `wanted` names by host and number."""
        came: dict[tuple[int, int], socket.socket] = {}
        deadline = time.monotonic() + SILENCE_S
        try:
            while wanted - came.keys():
                self._listener.settimeout(max(0.001, deadline - time.monotonic()))
                try:
                    link, _ = self._listener.accept()
                except TimeoutError:
                    missing = sorted({source for source, _ in wanted - came.keys()})
                    names = ", ".join(self._peers[source].name for source in missing)
                    here = self._peers[self._me].name
                    raise PeerError(
                        f"probe: no connection from {names} came to host {here} in {SILENCE_S:.0f} s\n"
                        "hint: is a firewall between them?",
                        rank=missing[0],
                        host=self._peers[missing[0]].name,
                        why="timeout",
                        missing=missing,
                    ) from None
                caller = self._greeted(link, step)
                if caller is None or caller not in wanted or caller in came:
                    link.close()
                else:
                    came[caller] = link
        except BaseException:
            for link in came.values():
                link.close()
            raise
        return came

    def _greeted(self, link: socket.socket, step: int) -> tuple[int, int] | None:
        """The calling host, and the number of its connection; None for a stranger or a call of another step."""
        try:
            link.settimeout(1.0)
            _tune(link)
            magic, token, source, called, lane = _GREETING.unpack(_exactly(link, _GREETING.size))
        except (OSError, EOFError):
            return None
        return (int(source), int(lane)) if (magic, token, called) == (_MAGIC, self._token, step) else None


class Links:
    """Connections of one step, by peer. A context manager."""

    def __init__(
        self, peers: Sequence[Peer], me: int, link: socket.socket, *, token: bytes, step: int, pace: Pace
    ) -> None:
        """Begin without connections: `Station.open` adds them. Datagrams go over `link`, when `pace` allows."""
        self._datagrams = link
        self._me = me
        self._pace = pace
        self._token = token
        self._step = step
        self.out: dict[int, socket.socket] = {}
        self.into: dict[int, socket.socket] = {}
        self.more_out: list[tuple[int, socket.socket]] = []
        self.more_in: list[tuple[int, socket.socket]] = []
        self._peers = peers

    def __enter__(self) -> Links:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; idempotent."""
        more = (link for _, link in (*self.more_out, *self.more_in))
        for link in (*self.out.values(), *self.into.values(), *more):
            link.close()

    def round_trips(self, duration_s: float) -> dict[int, Trips]:
        """Send requests on outgoing connections and answer them on incoming ones; returns the requests' round trips.

        A host does one or the other in a step. Where datagrams do not pass, round trips are those of TCP, without
        losses.
        """
        done = threading.Event()
        with ThreadPoolExecutor(max(1, len(self.into) + 1)) as pool:
            echoes = [pool.submit(self._echo, source, duration_s) for source in self.into]
            if self.into:
                answers = pool.submit(datagrams.answer, self._datagrams, self._token, self._step, done)
            try:
                found = {destination: self._trips(destination, duration_s) for destination in self.out}
                for link in self.out.values():
                    link.shutdown(socket.SHUT_WR)
                for echo in echoes:
                    echo.result()
            finally:
                done.set()
            if self.into:
                answers.result()
        return found

    def _trips(self, destination: int, duration_s: float) -> Trips:
        peer = self._peers[destination]
        try:
            trips = datagrams.ask(
                self._datagrams,
                (peer.address, peer.port),
                self._token,
                self._step,
                duration_s=duration_s,
                pace=self._pace,
            )
        except OSError:
            trips = None
        return trips or self._ping(destination, duration_s)

    def trains_bit_per_s(self) -> dict[int, float]:
        """Send trains on outgoing connections and receive them on incoming ones, and return the capacity of the incoming paths.

        Raises PeerError when no train of a peer arrived sufficiently complete.
        """
        sent = threading.Event()
        with ThreadPoolExecutor(1 + len(self.into) + len(self.out)) as pool:
            arrivals = None
            if self.into:
                arrivals = pool.submit(
                    trains.receive, self._datagrams, self._token, self._step, list(self.into), sent
                )
            try:
                senders = [pool.submit(self._send_trains, destination) for destination in self.out]
                ends = [pool.submit(self._until_closed, source) for source in self.into]
                for each in (*senders, *ends):
                    each.result()
            finally:
                sent.set()
            came = {} if arrivals is None else arrivals.result()
        found = {}
        for source, theirs in came.items():
            rate = trains.settle(theirs)
            if rate is None:
                raise PeerError(
                    f"probe: no train of datagrams from host {self._peers[source].name} came to host {self._peers[self._me].name}\n"
                    "hint: where datagrams do not pass, --rates tcp measures with TCP",
                    rank=source,
                    host=self._peers[source].name,
                )
            found[source] = rate
        return found

    def _send_trains(self, destination: int) -> None:
        """Send trains, then signal their end by closing this direction of the connection."""
        peer, link = self._peers[destination], self.out[destination]
        here = self._peers[self._me].address
        try:
            trains.send((here, self._me), (peer.address, peer.port), self._token, self._step, self._pace)
            link.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise self._silent(destination, error) from None

    def _until_closed(self, source: int) -> None:
        link = self.into[source]
        link.settimeout(self._pace.wait_s(trains.TRAINS_BYTES) + SILENCE_S)
        try:
            while link.recv(_PING_BYTES):
                pass
        except OSError as error:
            raise self._silent(source, error) from None

    def receive_bit_per_s(self, duration_s: float, *, window_s: float | None) -> dict[int, float]:
        """Send on outgoing connections and receive on incoming ones, at once; returns incoming rates, by `Meter`."""
        out = [*self.out.items(), *self.more_out]
        into = [*self.into.items(), *self.more_in]
        meters = {source: Meter(duration_s, window_s) for source in self.into}
        with ThreadPoolExecutor(max(1, len(into) + len(out))) as pool:
            receivers = [pool.submit(self._receive, source, link, meters[source]) for source, link in into]
            senders = [pool.submit(self._send, destination, link, duration_s) for destination, link in out]
            for each in (*receivers, *senders):
                each.result()
        return {source: meter.bit_per_s or 0.0 for source, meter in meters.items()}

    def _ping(self, destination: int, duration_s: float) -> Trips:
        link = self.out[destination]
        link.settimeout(SILENCE_S)
        times = Quantile()
        end = time.perf_counter() + duration_s
        try:
            while (
                times.count < datagrams.QUESTIONS_MAX
                and not times.known
                and (times.count < PINGS_MIN or time.perf_counter() < end)
            ):
                start = time.perf_counter()
                link.sendall(bytes(_PING_BYTES))
                _exactly(link, _PING_BYTES)
                times.add(time.perf_counter() - start)
        except (OSError, EOFError) as error:
            raise self._silent(destination, error) from None
        return Trips(times.value, times.count, 0, 0, times.precision)

    def _echo(self, source: int, duration_s: float) -> None:
        """Echo until the other end closes, which first sends datagrams, if these pass."""
        link = self.into[source]
        link.settimeout(2 * duration_s + SILENCE_S)
        try:
            while ping := link.recv(_PING_BYTES):
                link.sendall(ping)
        except OSError as error:
            raise self._silent(source, error) from None

    def _send(self, destination: int, link: socket.socket, duration_s: float) -> None:
        """Send until the receiver closes, which ends a transfer."""
        link.settimeout(duration_s + SILENCE_S)
        piece = bytes(_PIECE_BYTES)
        try:
            while True:
                link.sendall(piece)
        except TimeoutError as error:
            raise self._silent(destination, error) from None
        except OSError:
            return

    def _receive(self, source: int, link: socket.socket, meter: Meter) -> None:
        link.settimeout(SILENCE_S)
        room = bytearray(_PIECE_BYTES)
        try:
            while meter.bit_per_s is None:
                count = link.recv_into(room)
                if count == 0:
                    raise EOFError("it closed the connection")
                meter.add(time.perf_counter(), count)
        except (OSError, EOFError) as error:
            raise self._silent(source, error) from None
        finally:
            link.close()

    def _silent(self, peer: int, error: Exception) -> PeerError:
        reason = f"nothing for {SILENCE_S:.0f} s" if isinstance(error, TimeoutError) else str(error)
        name = self._peers[peer].name
        return PeerError(f"probe: measuring with host {name} failed: {reason}", rank=peer, host=name)


def _both(family: int, address: str) -> tuple[socket.socket, socket.socket]:
    """Sockets for TCP and for UDP on one port that is free for both."""
    for _ in range(PORTS_TRIED):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.bind((address, 0))
            return listener, datagrams.listen(family, address, listener.getsockname()[1])
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise
    raise PeerError(f"probe: no port of {address} is free for both TCP and UDP")


def _tune(link: socket.socket, *, far: bool = False) -> None:
    """Set the congestion control of the wire's own connections.

    It is CUBIC if the kernel has it, since two BBR flows share a trunk at random, and BBR on long paths, which may have random
    losses.
    """
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(OSError):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr" if far else b"cubic")


def _exactly(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = link.recv(count - len(data))
        if not more:
            raise EOFError("it closed the connection")
        data += more
    return data
