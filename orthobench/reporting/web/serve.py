"""Serve the page of one database on this machine, read-only, and update it while runs train."""

from __future__ import annotations

import errno
import hashlib
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from orthobench.errors import UsageError, one_line
from orthobench.options.arguments import PORT

HOST = "127.0.0.1"
END_SECONDS = 10.0
"""Time that a running look at the database has to finish when the server closes."""
RENDER_SHARE = 0.2
"""The largest share of time to spend on building the page while runs train."""
CHECK_SECONDS = 1.0
"""Time between two looks at the database."""


class Page:
    """The page of a changing database, built again on demand if the database has changed.

    Args:
        make: builds the whole page.
        newest: returns a value that differs after each change of the database.
    """

    def __init__(self, make: Callable[[], str], newest: Callable[[], Any]) -> None:
        self._make, self._newest = make, newest
        self._lock = threading.Lock()
        self._page, self._tag = b"", ""
        self._state: Any = None
        self._next_look = 0.0
        self._has_ended = False

    def current(self) -> tuple[bytes, str]:
        """Return the page and the tag of its state, which the page contains for its script.

        Raises:
            OrthobenchError: the database cannot be read.
        """
        # One at a time, because two windows of a browser would otherwise have the page built twice.
        with self._lock:
            if not self._has_ended and time.monotonic() >= self._next_look:
                self._look()
            return self._page, self._tag

    def end(self) -> None:
        """Wait for a running look, whose connection would keep the database's log open, and allow no further one."""
        self._has_ended = True
        if self._lock.acquire(timeout=END_SECONDS):
            self._lock.release()

    def _look(self) -> None:
        state, begin = self._newest(), time.monotonic()
        if state != self._state or not self._page:
            page = self._make()
            self._tag = hashlib.sha256(page.encode()).hexdigest()[:32]
            self._page = page.replace("<html ", f'<html data-tag="{self._tag}" ', 1).encode()
            self._state = state
        took = time.monotonic() - begin
        self._next_look = time.monotonic() + max(CHECK_SECONDS, took / RENDER_SHARE)


class PageServer(ThreadingHTTPServer):
    """An HTTP server on the loopback device alone.

    Raises:
        UsageError: the port is in use or not allowed.
    """

    # Daemons, because a browser that keeps its connection must not keep the server from ending.
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, page: Page, port: int = PORT) -> None:
        self.page = page
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            in_use = getattr(error, "errno", None) == errno.EADDRINUSE
            problem = "is in use" if in_use else f"cannot be used ({error})"
            raise UsageError(f"port {port} {problem}: give another with `port`, or `port=0` for a free one") from error

    def server_close(self) -> None:
        """Close the socket, and end the looks at the database."""
        super().server_close()
        self.page.end()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing, because a browser may disconnect while it is being answered."""

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD for the page, if the browser addresses this machine by a local name."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "orthobench", ""
    # With a limit, because a client that never finishes its request would keep a thread for ever.
    timeout = 30

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request that the base class does not understand, such as another method."""
        self.close_connection = True  # because a request body is not read
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"this server answers GET and HEAD\n", {"Allow": "GET, HEAD"})
        else:
            self._send(HTTPStatus(code), b"this request cannot be read\n")

    def _answer(self, with_body: bool) -> None:
        names = {f"{host}:{self.server.server_port}" for host in (HOST, "localhost")}
        if self.headers.get_all("Host") not in [[name] for name in names]:  # DNS rebinding: a foreign name for here
            self._send(HTTPStatus.FORBIDDEN, b"ask for this server by its own name\n", with_body=with_body)
            return
        if self.path != "/":
            self._send(HTTPStatus.NOT_FOUND, b"there is only the page /\n", with_body=with_body)
            return
        try:
            page, tag = self.server.page.current()
        except Exception as error:  # the database may be moved or locked while it is read
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, f"{one_line(error)}\n".encode(), with_body=with_body)
            return
        name = f'"{tag}"'
        if self.headers.get("If-None-Match") == name:
            self._send(HTTPStatus.NOT_MODIFIED, None, {"ETag": name}, with_body=False)
            return
        headers = {"Content-Type": "text/html; charset=utf-8", "ETag": name}
        self._send(HTTPStatus.OK, page, headers, with_body=with_body)

    def _send(
        self, status: HTTPStatus, body: bytes | None, headers: dict[str, str] | None = None, with_body: bool = True
    ) -> None:
        self.send_response(status)
        fixed = {
            "Content-Type": "text/plain; charset=utf-8",
            "Cache-Control": "no-cache",
            # As a header, because browsers ignore this rule in a page's own <meta>.
            "Content-Security-Policy": "frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        for name, value in (fixed | (headers or {})).items():
            self.send_header(name, value)
        if body is not None:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body is not None and with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""
