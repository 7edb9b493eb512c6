# SPDX-License-Identifier: MIT
"""A running sweep's page: who may read it, what it says as trials come, and its end."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mpnet.errors import ConfigError
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
