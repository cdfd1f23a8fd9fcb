"""One thread waits for all connections of a process, `threads` others answer whole requests.

The waiting one never waits for a single client. epoll tells it of a connection once (EPOLLONESHOT);
whoever is done with the connection arms it again, so a request costs no word between threads but
its place in the queue.
"""

import contextlib
import errno
import select
import socket
import threading
import time
from queue import SimpleQueue
from typing import Any

from gunicorn.http.errors import NoMoreData
from gunicorn.workers import base
from gunicorn.workers.gthread import ThreadWorker

from portal.server import limits
from portal.server.bodies import CutBody
from portal.server.connection import Connection
from portal.server.lingering import Lingering
from portal.server.shares import NOBODY, shares

ARMED = select.EPOLLIN | select.EPOLLONESHOT
# What a client does to us is no fault of ours: it went, or a limit cut it.
ITS_OWN = (ConnectionError, BlockingIOError, NoMoreData, CutBody)


class Worker(ThreadWorker):
    """Of gunicorn's worker of threads, this keeps how one request is answered."""

    @classmethod
    def check_config(cls, cfg: Any, log: Any) -> None:
        if cfg.is_ssl:
            raise SystemExit("The portal speaks no TLS itself; a proxy in front of it does.")
        super().check_config(cfg, log)

    def init_process(self) -> None:
        # gunicorn looks a setting up by failing to find it elsewhere, some thirty times a request.
        known = {name: found.get() for name, found in self.cfg.settings.items()}
        self.cfg.__dict__.update({k: v for k, v in known.items() if not hasattr(type(self.cfg), k)})
        self.connections: dict[int, Connection] = {}
        self.ready: SimpleQueue[Connection] = SimpleQueue()
        self.lingering = Lingering()
        self.places = threading.Lock()  # held while a number changes hands
        self.listening = False
        self.next_look = 0.0
        self.epoll = select.epoll()
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        base.Worker.init_process(self)  # it calls run

    def run(self) -> None:
        self.epoll.register(self._woken, select.EPOLLIN)
        self.listeners = {listener.fileno(): listener for listener in self.sockets}
        for listener in self.sockets:
            listener.setblocking(False)
        self._tell()
        for number in range(self.cfg.threads):
            name = f"answers-{number}"
            threading.Thread(target=self._answer_all, name=name, daemon=True).start()
        self._listen(on=True)
        while self.alive:
            self._turn()
        self._wind_down()

    def handle_exit(self, sig: int, frame: object) -> None:
        self.alive = False
        self._call()

    def handle_quit(self, sig: int, frame: object) -> None:
        base.Worker.handle_quit(self, sig, frame)

    def _wind_down(self) -> None:
        """Answer what was begun, and what may be on its way already."""
        self._listen(on=False)
        self._tell()
        end = time.monotonic() + self.cfg.graceful_timeout
        for conn in list(self.connections.values()):
            if conn.until is not None and not conn.head:
                conn.wait(limits.STOP_S)
        while self.connections and time.monotonic() < end:
            self._turn()
        for listener in self.sockets:
            listener.close()

    def _listen(self, *, on: bool) -> None:
        if on == self.listening:
            return
        self.listening = on
        for listener in self.listeners.values():
            if on:
                self.epoll.register(listener, select.EPOLLIN)
            else:
                self.epoll.unregister(listener)

    def _tell(self) -> None:
        shares.put(self.age, len(self.connections) if self.alive else NOBODY)

    def _call(self) -> None:
        """Wake the thread that waits."""
        with contextlib.suppress(BlockingIOError):  # it is called already
            self._wake.send(b"w")

    # The thread that waits

    def _turn(self) -> None:
        for fd, _ in self.epoll.poll(max(0.0, self.next_look - time.monotonic())):
            if (conn := self.connections.get(fd)) is not None:
                self._arrive(conn)
            elif fd == self._woken.fileno():
                self._woken.recv(4096)
                self._resume()
            elif listener := self.listeners.get(fd):
                self._accept(listener)
        now = time.monotonic()
        if now >= self.next_look:
            self.next_look = now + limits.LOOK_EVERY_S
            self._look(now)

    def _accept(self, listener: Any) -> None:
        """Where all places are taken, the connection that was silent for longest ends for it."""
        full = self._is_full()
        oldest = self._oldest() if full else None
        if full and oldest is None:
            self._listen(on=False)
            return
        shares.give_way(self.age, len(self.connections))
        try:
            sock, client = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # another process was first, or the client is gone again
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self.log.warning("No more files may be open; is worker_connections too large?")
            sock, oldest = None, self._oldest()
            self._listen(on=oldest is not None)
        if oldest is not None:
            self._end(oldest)
        if sock is not None:
            self._take(Connection(self.cfg, sock, client, listener.getsockname()))

    def _resume(self) -> None:
        if self.alive and not self.listening:
            self._listen(on=not self._is_full() or self._oldest() is not None)

    def _is_full(self) -> bool:
        return len(self.connections) >= self.worker_connections

    def _take(self, conn: Connection) -> None:
        with self.places:
            self.connections[conn.fd] = conn
            self.epoll.register(conn.fd, ARMED)
            self._tell()

    def _oldest(self) -> Connection | None:
        """Of those that no thread has, a silent one before one that sends a head; nobody who has
        only just come."""
        before = time.monotonic() - limits.SILENT_S
        waiting = [
            conn
            for conn in list(self.connections.values())
            if conn.until is not None and conn.since <= before
        ]
        return min(waiting, key=lambda conn: (bool(conn.head), conn.since), default=None)

    def _arrive(self, conn: Connection) -> None:
        if conn.until is None:
            return  # a thread has it: the word is of an earlier connection of this number
        try:
            if conn.arrive():
                self.ready.put(conn)
            else:
                self.epoll.modify(conn.fd, ARMED)
        except OSError:
            self._end(conn)

    def _end(self, conn: Connection) -> None:
        self._forget(conn)
        conn.sock.close()

    def _look(self, now: float) -> None:
        """Once a second: those whose time is over, and those that are slow."""
        self.notify()
        self.alive = self.alive and self.is_parent_alive()
        for conn in list(self.connections.values()):
            if conn.until is None:
                conn.cut_if_slow(now)
            elif conn.until <= now:
                if conn.give_up():
                    self.ready.put(conn)
                else:
                    self._end(conn)
        self._resume()

    # The threads that answer

    def _answer_all(self) -> None:
        while True:
            conn = self.ready.get()
            goes_on = self._answer(conn)
            conn.request = None
            if goes_on:
                self._keep(conn)
            else:
                self._leave(conn)

    def _answer(self, conn: Connection) -> bool:
        """Whether the connection may carry another request."""
        request = None
        try:
            request = conn.next_request()
            return self.handle_request(request, conn) and conn.finish()
        except StopIteration:
            pass  # it failed in the midst of the answer, and said so
        except ITS_OWN as error:
            self.log.debug("The client went, or was cut: %s", error)
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                self.log.exception("Socket error processing request.")
        except (Exception, SystemExit) as error:
            self.handle_error(request, conn.sock, conn.client, error)
        return False

    def _keep(self, conn: Connection) -> None:
        rest = conn.rest()
        if rest and conn.add(rest):
            self.ready.put(conn)
            return
        if not rest:
            conn.wait(self.cfg.keepalive if self.alive else limits.STOP_S)
        with contextlib.suppress(OSError, ValueError):  # ended to make room, or all ends
            self.epoll.modify(conn.fd, ARMED)
        if not self.listening:
            self._call()  # there is one now that can make room

    def _leave(self, conn: Connection) -> None:
        self._forget(conn)
        if conn.cut:
            conn.drop()
        else:
            self.lingering.take(conn.sock)
        if not (self.listening and self.alive):
            self._call()

    def _forget(self, conn: Connection) -> None:
        """The number of a closed connection is given to the next one. So it goes before it is
        closed, and where gunicorn has closed it already, nothing of the next one goes."""
        with self.places:
            if self.connections.get(conn.fd) is conn:
                del self.connections[conn.fd]
                self._tell()
                with contextlib.suppress(OSError, ValueError):
                    self.epoll.unregister(conn.fd)
