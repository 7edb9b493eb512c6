# SPDX-License-Identifier: MIT
"""A sweep's report in a browser of this machine while the sweep runs: read only, from the store alone.

The page is the ordinary report in a frame below a line that says how far the sweep is. Server-sent events say when trials
were added; the frame then loads the report anew. Other programs of this machine cannot read it without the token.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import socket
import sys
import threading
import time
from base64 import b64encode
from contextlib import suppress
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mpnet.errors import ConfigError, MpnetError
from mpnet.progress import silent
from mpnet.report.collect.report import collect
from mpnet.report.html.page import render
from mpnet.sweep.choose.status import SweepStatus, sweep_status

POLL_SECONDS = 1.0
"""Time between two looks at the store."""
GRACE_SECONDS = 10.0
"""How long the last page can still be fetched after the sweep has ended."""
BEAT_SECONDS = 15.0
"""Time between two signs of life to a browser while nothing changes."""
LOOKS = 5
"""Looks at the store that may fail one after the other: files and memory of the machine may be short for a moment."""
READ_SECONDS = 10.0
"""How long a request may take to come, and a browser to take a part of a page."""
MOST_STRANGERS, MOST_READERS = 32, 64
"""Connections at a time: of whoever has not shown the token yet, the oldest of which gives way, and of those that have."""
_PART_BYTES = 1 << 16
END_STATES = ("finished", "stopped")

_SCRIPT = """
const frame = document.getElementById("report"), line = document.getElementById("status");
let scrolled = 0;
frame.addEventListener("load", () => frame.contentWindow.scrollTo(0, scrolled));
const events = new EventSource("events");
events.onmessage = (event) => {
  const status = JSON.parse(event.data);
  line.textContent = status.text;
  if (frame.dataset.trials !== String(status.trials) || status.ended) {
    scrolled = frame.contentWindow.scrollY || 0;
    frame.dataset.trials = status.trials;
    frame.src = "report?" + status.trials + (status.ended ? "-end" : "");
  }
  if (status.ended) events.close();
};
events.onerror = () => { line.textContent += " (no connection; trying again)"; };
"""
_SHELL = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">
<title>{name} · mpnet live</title><link rel="icon" href="data:,">
<style>body{{margin:0;display:flex;flex-direction:column;height:100vh;font:15px system-ui,sans-serif}}
p{{margin:0;padding:.5rem 1rem;border-bottom:1px solid gray}}iframe{{flex:1;border:0;width:100%}}</style></head>
<body><p id="status" role="status">connecting</p><iframe id="report" title="Report of the sweep so far"></iframe>
<script>{script}</script></body></html>"""
_WAITING = (
    "<!DOCTYPE html><html lang='en'><meta name='color-scheme' content='light dark'><title>waiting</title><p>{why}</p></html>"
)


def status_text(status: SweepStatus) -> str:
    """Say how far a sweep is, in a line."""
    of_total = f" of {status.total:,}" if status.total else ""
    tail = "; this page no longer changes" if status.state in END_STATES else ""
    return f"{status.state}: {status.trials:,}{of_total} trials, {status.seconds:.0f} s of work{tail}"


class LiveReport:
    """A server of one sweep of a store on 127.0.0.1 until it has ended.

    sweep: its number, None: the last one. port: 0 takes a free one.
    Raises: StoreError for what is no store; ConfigError for a port that is taken.
    """

    def __init__(self, store: Path, sweep: int | None = None, port: int = 0) -> None:
        self._store, self._sweep = store, sweep
        self._token = secrets.token_urlsafe(24)
        self._status = sweep_status(store, sweep)
        self._changed = threading.Condition()
        self._version = 0
        self._owed = 0  # browsers that know of the end and have not fetched the last page yet
        self._pages: dict[tuple[int, str], str] = {}
        self._rendering = threading.Lock()
        try:
            self._server = _Server(("127.0.0.1", port), partial(_Handler, self))
        except OSError as error:
            raise ConfigError(f"--port {port}: {error.strerror or error}; name another, or leave it out") from None

    @property
    def address(self) -> str:
        """Return the address to open in a browser."""
        return f"http://127.0.0.1:{self._server.server_port}/{self._token}/"

    def serve(self) -> None:
        """Serve until the sweep has ended and open pages have shown that."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        failed_looks = 0
        try:
            while self._status.state not in END_STATES:
                time.sleep(POLL_SECONDS)
                failed_looks = self._look(failed_looks)
            deadline = time.monotonic() + GRACE_SECONDS
            with self._changed:
                self._changed.notify_all()
            time.sleep(POLL_SECONDS)
            while self._owed > 0 and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            self._server.shutdown()
            self._server.server_close()

    def _look(self, failed_looks: int) -> int:
        """Look at the store. Return how many looks have failed since one did not. Raises: MpnetError of the last of LOOKS."""
        try:
            status = sweep_status(self._store, self._sweep)
        except MpnetError:
            if failed_looks + 1 >= LOOKS:
                raise
            return failed_looks + 1
        if status_text(status) != status_text(self._status):
            with self._changed:
                self._status = status
                self._version += 1
                self._changed.notify_all()
        return 0

    def answer(self, handler: _Handler) -> None:
        """Answer one GET. Anything without the token, or under another machine's name, is not there."""
        root, _, path = handler.path.partition("?")[0].partition("/")  # `*` and `foo` have no slash
        token, slash, page = path.partition("/")
        port = self._server.server_port
        is_own_host = handler.headers.get("Host") in (f"127.0.0.1:{port}", f"localhost:{port}")
        is_reader = is_own_host and secrets.compare_digest(token.encode(), self._token.encode()) and bool(slash) and not root
        if not is_reader:
            handler.send_error(404)
        elif not self._server.admit(handler.connection):
            handler.send_error(503)
        elif page == "":
            script = b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
            policy = (
                f"default-src 'none'; script-src 'sha256-{script}'; style-src 'unsafe-inline'; img-src data:; "
                "connect-src 'self'; frame-src 'self'; base-uri 'none'"
            )
            handler.send_page(_SHELL.format(name=escape(str(self._status.name)), script=_SCRIPT), policy)
        elif page == "report":
            handler.send_page(self._page(), "frame-ancestors 'self'")
            if handler.path.endswith("-end"):
                with self._changed:
                    self._owed -= 1
        elif page == "events":
            self._send_events(handler)
        else:
            handler.send_error(404)

    def _page(self) -> str:
        """Return the report of what is stored, rendered once for each number of trials."""
        with self._rendering:
            key = (self._status.trials, self._status.state)
            if key not in self._pages:
                try:
                    data = collect([self._store], progress=silent, compute=False, sweep=self._sweep)
                    self._pages = {key: render(data)}
                except MpnetError as error:  # nothing is finished yet
                    return _WAITING.format(why=escape(str(error)))
            return self._pages[key]

    def _send_events(self, handler: _Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Cache-Control", "no-store")
        handler.end_headers()
        sent_version = -1
        while True:
            with self._changed:
                if sent_version == self._version:
                    self._changed.wait(BEAT_SECONDS)
                status, version = self._status, self._version
                has_ended = status.state in END_STATES
                self._owed += has_ended
            event = {"text": status_text(status), "trials": status.trials, "ended": has_ended}
            handler.wfile.write(b": nothing new\n\n" if version == sent_version else f"data: {json.dumps(event)}\n\n".encode())
            handler.wfile.flush()
            sent_version = version
            if has_ended:
                return


class _Server(ThreadingHTTPServer):
    """A server with few connections, which nobody can fill who does not know the token."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        self._strangers: dict[socket.socket, None] = {}
        self._readers: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Let a thread serve a connection; the oldest that has not shown the token ends where there are too many."""
        with self._lock:
            while len(self._strangers) >= MOST_STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it
            self._strangers[request] = None
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no more threads
            self.shutdown_request(request)

    def admit(self, request: socket.socket) -> bool:
        """Count a connection that has shown the token among the readers; False where there are too many."""
        with self._lock:
            if len(self._readers) >= MOST_READERS:
                return False
            self._strangers.pop(request, None)
            self._readers.add(request)
            return True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._strangers.pop(request, None)
            self._readers.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that break; a fault of this program is printed."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One request. Everything but GET is refused by the base class."""

    timeout = READ_SECONDS

    def __init__(self, live: LiveReport, *arguments: Any) -> None:
        self._live = live
        super().__init__(*arguments)

    def do_GET(self) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the browser left
            self._live.answer(self)

    def send_page(self, html: str, policy: str) -> None:
        """Send a page that no browser keeps, with a policy of its own."""
        content = html.encode("utf-8", "backslashreplace")
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        for start in range(0, len(content), _PART_BYTES):  # each has its time: a slow line is no dead one
            self.wfile.write(content[start : start + _PART_BYTES])

    def log_message(self, format: str, *values: object) -> None:
        """Log nothing: addresses hold the token."""
