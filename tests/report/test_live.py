# SPDX-License-Identifier: MIT
"""A running sweep's page: who may read it, what it says as trials come, and its end."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mpnet.errors import ConfigError, StoreError
from mpnet.report import live
from mpnet.report.live import LiveReport
from mpnet.sweep.store import Trial, TrialStore
from tests.report.made_store import SUBJECT, make_store
from tests.report.synthetic import configurations


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(live, "POLL_SECONDS", 0.05)
    return make_store(tmp_path / "s.sqlite", count=40, state="running")


@pytest.fixture
def served(store: Path) -> Iterator[LiveReport]:
    page = LiveReport(store)
    thread = threading.Thread(target=page.serve)
    thread.start()
    yield page
    end(store)
    thread.join(30)
    assert not thread.is_alive()


def add(store: Path) -> None:
    """Add one more trial, as another process does."""
    table = configurations()
    with TrialStore.open(store, SUBJECT) as writer:
        [context] = writer.contexts()
        values = {name: float(table.columns[name][40]) for name in ("AP", "agreement_AP", "bit_operations")}
        writer.add(context, [Trial(table.keys[40], values)])


def end(store: Path) -> None:
    """End the sweep, as its own process notes it."""
    with TrialStore.open(store, SUBJECT) as writer:
        writer.set_note("status", json.dumps({"state": "finished", "owner": "elsewhere:1:x", "total": 41}))


def answer(page: LiveReport, path: str = "", method: str = "GET", **headers: str) -> tuple[int, str]:
    """Return (status, body) of a request; path: below the token."""
    address = urlsplit(page.address)
    connection = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=30)
    connection.request(method, path if path.startswith("/") else address.path + path, headers=headers)
    response = connection.getresponse()
    return response.status, response.read().decode()


def test_the_page_is_for_whoever_has_its_address(served: LiveReport) -> None:
    assert answer(served)[0] == 200
    status, page = answer(served, "report")
    assert (status, page.count("<h1")) == (200, 1)
    assert "of a running sweep, when that has ended" in page  # what it lacks, though nobody gave --no-compute
    for path in ("/", "/report", "/wrong/", "/wrong/report", urlsplit(served.address).path[:-2] + "/report", "../report"):
        assert answer(served, path)[0] == 404
    assert answer(served, Host="attacker.example")[0] == 404
    assert answer(served, method="POST")[0] == 501


def test_events_follow_the_store_and_end_with_the_sweep(served: LiveReport, store: Path) -> None:
    address = urlsplit(served.address)
    connection = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=30)
    connection.request("GET", address.path + "events")
    stream = connection.getresponse()

    def event() -> dict[str, object]:
        line = stream.readline()
        while not line.startswith(b"data: "):
            line = stream.readline()
        return dict(json.loads(line[len(b"data: ") :]))

    first = event()
    assert (first["trials"], first["ended"]) == (40, False)
    add(store)
    assert event()["trials"] == 41
    end(store)
    last = event()
    assert last["ended"]
    assert "this page no longer changes" in str(last["text"])
    assert answer(served, "report?41-end")[0] == 200  # the last page can still be fetched


def test_a_sweep_without_trials_says_what_it_waits_for(store: Path) -> None:
    empty = make_store(store.with_name("empty.sqlite"), count=0, state="running")
    page = LiveReport(empty)
    thread = threading.Thread(target=page.serve)
    thread.start()
    assert "holds no finished trial yet" in answer(page, "report")[1]
    end(empty)
    thread.join(30)
    assert not thread.is_alive()


def test_a_port_that_is_taken_is_one_line(served: LiveReport, store: Path) -> None:
    port = urlsplit(served.address).port or 0
    with pytest.raises(ConfigError, match=rf"--port {port}: "):
        LiveReport(store, port=port)


def connect(page: LiveReport) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(page.address).port or 0), timeout=30)


def test_whoever_lacks_the_token_cannot_fill_the_server(served: LiveReport) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(served)) for _ in range(live.MOST_STRANGERS + 20)]
        for connection in idle[::2]:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert answer(served)[0] == 200
        assert "<h1" in answer(served, "report")[1]
        assert idle[0].recv(1) == b""  # the oldest gave way


def test_a_request_that_does_not_come_is_not_waited_for(served: LiveReport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live._Handler, "timeout", 0.1)
    with connect(served) as silent, connect(served) as half:
        half.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert silent.recv(1) == half.recv(1) == b""


def test_readers_are_counted_and_leave(served: LiveReport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_READERS", 1)
    stream = http.client.HTTPConnection("127.0.0.1", urlsplit(served.address).port or 0, timeout=30)
    stream.request("GET", urlsplit(served.address).path + "events")
    events = stream.getresponse()
    assert answer(served)[0] == 503
    monkeypatch.setattr(live, "MOST_READERS", 2)
    assert any(answer(served)[0] == 200 for _ in range(100))  # as soon as the server knows that the last one left
    events.close()


@pytest.mark.parametrize(
    "line", ["GET * HTTP/1.1", "GET foo HTTP/1.1", "GET  HTTP/1.1", "GET / HTTP/9", "GET", "\xff\xfe /", "* *"]
)
def test_odd_request_lines_are_answered_and_say_nothing_in_the_terminal(
    line: str, served: LiveReport, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(served) as connection:
        connection.sendall(line.encode("latin-1") + b"\r\n\r\n")
        with connection.makefile("rb") as stream:
            reply = stream.read()
    assert b"Error code: 40" in reply or b"Error code: 505" in reply
    with connect(served) as connection:  # leaves before it is answered
        connection.sendall(line.encode("latin-1") + b"\r\n\r\n")
    assert answer(served)[0] == 200
    assert capfd.readouterr().err == ""


def fail_looks(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    """Let so many looks at the store fail, one after the other."""
    read, left = live.sweep_status, iter(range(failures))

    def sweep_status(*arguments: Any) -> Any:
        if next(left, None) is not None:
            raise StoreError("s.sqlite: cannot be opened (Too many open files)")
        return read(*arguments)

    monkeypatch.setattr(live, "sweep_status", sweep_status)


def test_a_look_at_the_store_that_fails_is_tried_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = LiveReport(store)
    fail_looks(monkeypatch, live.LOOKS - 1)
    end(store)
    page.serve()  # until the end that it sees


def test_a_store_that_stays_away_ends_the_page(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = LiveReport(store)
    fail_looks(monkeypatch, live.LOOKS)
    with pytest.raises(StoreError, match="Too many open files"):
        page.serve()
