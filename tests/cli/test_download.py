# SPDX-License-Identifier: MIT
"""`mpnet download` against a local HTTP server that misbehaves in the ways of real ones."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Iterator

import pytest
from click.testing import CliRunner

from mpnet.cli import download
from mpnet.cli.fetch import RemoteFile, fetch
from mpnet.errors import DownloadError

CONTENT = bytes(range(256)) * 1024
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT in the way that the path names; remembers the Range headers."""

    ranges: ClassVar[list[str | None]] = []

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        requested_range = self.headers.get("Range")
        self.ranges.append(requested_range)
        start = int(requested_range.removeprefix("bytes=").rstrip("-")) if requested_range else 0
        kind = self.path.strip("/")
        if kind == "forbidden":
            self.send_error(403)
            return
        if kind == "redirect":
            self.send_response(302)
            self.send_header("Location", "/whole")
            self.end_headers()
            return
        if kind == "gone" and start:
            self.send_error(416)
            return
        body = {"wrong": b"x" * len(CONTENT), "short": CONTENT[:1000], "long": CONTENT + b"y" * 5000}.get(kind, CONTENT)
        if kind in ("whole", "breaks") and start:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            body = body[start:]
        else:  # the others do not know ranges
            self.send_response(200)
        if kind != "unsized":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if kind == "breaks":
            body = body[:60_000]
        if kind == "stalls":
            self.wfile.write(body[:1000])
            self.wfile.flush()
            self.server.released.wait(10)  # type: ignore[attr-defined]
            return
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.released = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.released.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Handler, "ranges", [])
    with serving() as address:
        yield address


def remote(*urls: str) -> RemoteFile:
    return RemoteFile("net.weights", len(CONTENT), SHA256, urls)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["whole", "redirect", "breaks", "unsized"])
def test_the_file_arrives_whole(server: str, tmp_path: Path, kind: str) -> None:
    path = fetch(remote(f"{server}/{kind}"), tmp_path / "cache")
    assert path.read_bytes() == CONTENT
    assert names(tmp_path / "cache") == ["net.weights"]


def test_an_interrupted_download_is_taken_up_again(server: str, tmp_path: Path) -> None:
    (tmp_path / "net.weights.part").write_bytes(CONTENT[:100_000])
    steps: list[int] = []
    assert fetch(remote(f"{server}/whole"), tmp_path, steps.append).read_bytes() == CONTENT
    assert Handler.ranges == ["bytes=100000-"]
    assert steps[0] == 100_000
    assert sum(steps) == len(CONTENT)


@pytest.mark.parametrize("kind", ["unsized", "gone"])
def test_a_source_without_ranges_starts_anew(server: str, tmp_path: Path, kind: str) -> None:
    (tmp_path / "net.weights.part").write_bytes(CONTENT[:100_000])
    steps: list[int] = []
    assert fetch(remote(f"{server}/{kind}", f"{server}/whole"), tmp_path, steps.append).read_bytes() == CONTENT
    assert sum(steps) == len(CONTENT)


def test_a_damaged_beginning_is_thrown_away(server: str, tmp_path: Path) -> None:
    (tmp_path / "net.weights.part").write_bytes(b"damaged" * 1000)
    assert fetch(remote(f"{server}/whole"), tmp_path).read_bytes() == CONTENT
    assert Handler.ranges == ["bytes=7000-", None]


def test_a_whole_file_is_not_fetched_again(server: str, tmp_path: Path) -> None:
    (tmp_path / "net.weights").write_bytes(CONTENT)
    fetch(remote(f"{server}/whole"), tmp_path)
    assert Handler.ranges == []


def test_a_damaged_file_in_the_cache_is_replaced(server: str, tmp_path: Path) -> None:
    (tmp_path / "net.weights").write_bytes(b"z" * len(CONTENT))
    assert fetch(remote(f"{server}/whole"), tmp_path).read_bytes() == CONTENT


def test_sources_are_tried_in_order(server: str, tmp_path: Path) -> None:
    kinds = ("forbidden", "wrong", "short", "long", "whole")
    assert fetch(remote(*(f"{server}/{kind}" for kind in kinds)), tmp_path).read_bytes() == CONTENT


def test_every_failure_is_named_and_nothing_is_taken_for_the_file(server: str, tmp_path: Path) -> None:
    kinds = ("forbidden", "wrong", "long", "stalls")
    urls = [f"{server}/{kind}" for kind in kinds] + ["http://127.0.0.1:9/closed", "ftp://x/y", "http://[bad/z"]
    with pytest.raises(DownloadError) as excinfo:
        fetch(remote(*urls), tmp_path, timeout_s=2.0)  # long enough for a busy machine
    message = str(excinfo.value)
    reasons = [
        "HTTP 403",
        "another SHA-256",
        "offers 267144 bytes instead of 262144",
        "nothing came",
        "refused",
        "not an http",
        "not an http",
    ]
    for url, reason in zip(urls, reasons, strict=True):
        assert f"{url}: " in message
        assert reason in message
    assert "\n" not in message
    assert "net.weights" not in names(tmp_path)


def test_two_downloads_do_not_write_one_file(server: str, tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / "net.weights.part").open("ab") as partial_file:
        fcntl.flock(partial_file, fcntl.LOCK_EX)
        with pytest.raises(DownloadError, match="is being written by another download"):
            fetch(remote(f"{server}/whole"), tmp_path)


def test_the_command_prints_where_the_file_is(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(download.MODELS, "yolov3-tiny", (remote(),))
    arguments = ["yolov3-tiny", "--to", str(tmp_path), "--url", f"{server}/whole"]
    assert CliRunner().invoke(download.command, arguments).stdout == f"{tmp_path}/net.weights\n"
    document = json.loads(CliRunner().invoke(download.command, [*arguments, "--json"]).stdout)
    assert document == {
        "model": "yolov3-tiny",
        "files": [{"name": "net.weights", "path": f"{tmp_path}/net.weights", "bytes": len(CONTENT), "sha256": SHA256}],
    }


def test_official_files_have_a_size_a_digest_and_sources() -> None:
    for files in download.MODELS.values():
        for file in files:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert file.size_bytes > 0
            assert len(file.urls) >= 2
            assert all(url.startswith("https://") for url in file.urls)
