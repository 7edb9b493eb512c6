# SPDX-License-Identifier: MIT
"""Fetching one file over HTTP: resumable, of known size and digest, from the first source that works."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from mpnet import __version__
from mpnet.errors import DownloadError
from mpnet.progress import Advance, unseen

TIMEOUT_S = 30.0
PIECE_BYTES = 1 << 16
# A connection that breaks is taken up again at the same source as long as it brought something, this often at most.
RESUMES = 5


@dataclass(frozen=True)
class RemoteFile:
    """A file to fetch: its name, size, SHA-256 in hex, and where it may be had, best source first."""

    name: str
    size_bytes: int
    sha256: str
    urls: tuple[str, ...]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def is_complete(path: Path, remote: RemoteFile) -> bool:
    """Return whether `path` is the whole, undamaged file."""
    return path.is_file() and path.stat().st_size == remote.size_bytes and sha256_of(path) == remote.sha256


def fetch(remote: RemoteFile, folder: Path, advance: Advance = unseen, timeout_s: float = TIMEOUT_S) -> Path:
    """Bring `remote` into `folder` and return its path; a file that is already there and whole is kept.

    What has arrived of an interrupted download waits in `<name>.part` and is taken up again. `advance` gets the bytes
    as they come (negative when a useless start is thrown away).
    Raises: DownloadError naming every source and its failure.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, part = folder / remote.name, folder / f"{remote.name}.part"
    if is_complete(target, remote):
        advance(remote.size_bytes)
        return target
    failures = []
    with part.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DownloadError(f"{part}: is being written by another download; wait for it") from None
        advance(min(os.fstat(file.fileno()).st_size, remote.size_bytes))
        for url in remote.urls:
            if failure := _from_source(url, remote, file, advance, timeout_s):
                failures.append(f"{url}: {failure}")
                continue
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, target)
            return target
    raise DownloadError(
        f"{remote.name} could not be fetched: {'; '.join(failures) or 'no source is known'}. "
        f"Try again later, or put the file there yourself: {target}"
    )


def _from_source(url: str, remote: RemoteFile, file: IO[bytes], advance: Advance, timeout_s: float) -> str | None:
    """Complete `file` from one source. Returns what went wrong, or None when the file is whole."""
    if not _is_web_address(url):
        return "is not an http or https address"
    for _ in range(RESUMES + 1):
        start = _size(file)
        if start > remote.size_bytes or (start == remote.size_bytes and _digest(file) != remote.sha256):
            _empty(file, advance)
            start = 0
        if start == remote.size_bytes:
            return None
        failure = _receive(url, start, remote.size_bytes, file, advance, timeout_s)
        got = _size(file)
        if got == remote.size_bytes:
            if _digest(file) == remote.sha256:
                return None
            _empty(file, advance)
            if start == 0:
                return f"what came has another SHA-256 than {remote.sha256[:16]}..."
            continue  # the beginning came from elsewhere: once more, from this source alone
        if got > remote.size_bytes:
            _empty(file, advance)
            return f"sends more than the {remote.size_bytes} bytes expected"
        if got <= start:
            return failure or "sends nothing more"
    return failure or "the connection breaks again and again"


def _is_web_address(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False


def _receive(url: str, start: int, size: int, file: IO[bytes], advance: Advance, timeout_s: float) -> str | None:
    """Append what `url` sends from byte `start` on. Returns what went wrong, or None."""
    headers = {"User-Agent": f"mpnet/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            if start and not _continues(answer, start):
                _empty(file, advance)
                start = 0
            length = answer.headers.get("Content-Length", "")
            if length.isdigit() and int(length) != size - start:
                return f"offers {int(length) + start} bytes instead of {size}"
            while piece := answer.read(min(PIECE_BYTES, size + 1 - _size(file))):
                file.write(piece)
                advance(len(piece))
    except urllib.error.HTTPError as error:
        if error.code == 416:  # what we have is longer than the file there: begin anew next time
            _empty(file, advance)
        return f"HTTP {error.code} {error.reason}"
    except urllib.error.URLError as error:
        return str(error.reason)
    except TimeoutError:
        return f"nothing came for {timeout_s:g} s"
    except http.client.HTTPException as error:
        return f"broke off ({type(error).__name__})"
    except ConnectionError as error:
        return str(error.strerror or error)
    except ValueError as error:
        return str(error)
    return None


def _continues(answer: http.client.HTTPResponse, start: int) -> bool:
    """Return whether the answer really begins at byte `start`."""
    match = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return answer.status == 206 and match is not None and int(match.group(1)) == start


def _size(file: IO[bytes]) -> int:
    file.flush()
    return os.fstat(file.fileno()).st_size


def _digest(file: IO[bytes]) -> str:
    file.flush()
    return sha256_of(Path(file.name))


def _empty(file: IO[bytes], advance: Advance) -> None:
    advance(-_size(file))
    file.truncate(0)
