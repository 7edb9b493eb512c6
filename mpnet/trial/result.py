"""Finished results: folders that appear whole or not at all, and reading them back."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

from mpnet.errors import StoreError
from mpnet.spec.identity import ID_DIGITS

FORMAT = "mpnet-result"
VERSION = 1
RESULT_FILE = "result.json"
DETECTIONS_FILE = "detections.json"
LATEST = "latest"
REPLACE_ATTEMPTS = 100
MAX_RESULT_BYTES = 64 << 20
_ID = re.compile(rf"[0-9a-f]{{{ID_DIGITS}}}\Z")
# Sections that every result has, and their type; docs/architecture.md describes them.
_SECTIONS: dict[str, type] = {
    "name": str, "id": str, "digests": dict, "protocol": dict, "precision": dict, "metrics": dict, "per_class": list,
    "cost": dict, "versions": dict,
}


@dataclass(frozen=True)
class Result:
    """A finished run. document: the whole of result.json, as docs/architecture.md describes it."""

    folder: Path
    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.document["name"])

    @property
    def id(self) -> str:
        """First 16 hex digits of the trial's digest."""
        return str(self.document["id"])

    @property
    def metrics(self) -> Mapping[str, float]:
        """AP, AP50, AP75, AR100, darknet_mAP50, ... in percent; -1 where nothing could be measured."""
        metrics: Mapping[str, float] = self.document["metrics"]
        return metrics

    @property
    def detections_path(self) -> Path:
        """The detections in COCO results format."""
        return self.folder / DETECTIONS_FILE


def publish(document: Mapping[str, Any], detections: bytes, folder: Path) -> Result:
    """Write result.json and detections.json into `folder`, which appears complete or not at all.

    A result that is there already is replaced. Whatever is left of an interrupted attempt is a folder whose name
    begins with a dot. Raises: StoreError naming the folder when it cannot be written.
    """
    scratch: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        text = json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
        _write(scratch / DETECTIONS_FILE, detections)
        _write(scratch / RESULT_FILE, text.encode())
        scratch.chmod(0o777 & ~_umask())
        _put_in_place(scratch, folder)
        scratch = None
        _sync(folder.parent)
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be written ({error.strerror or error}); check the space and the permissions, or choose "
            "another output"
        ) from None
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
    return Result(folder, document)


def _put_in_place(scratch: Path, folder: Path) -> None:
    """Give `scratch` the name of `folder`; what had that name goes. Other processes may do so at the same time."""
    old: Path | None = None
    try:
        for _ in range(REPLACE_ATTEMPTS):
            try:
                os.rename(scratch, folder)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            try:
                os.rename(folder, aside)  # an empty folder gives way
            except FileNotFoundError:  # somebody else was quicker
                aside.rmdir()
                continue
            if old is not None:
                shutil.rmtree(old, ignore_errors=True)
            old = aside
        raise StoreError(f"{folder}: is replaced by others all the time; let one process write it")
    except BaseException:
        if old is not None and not folder.exists():
            os.rename(old, folder)
        raise
    finally:
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)


def mark_latest(folder: Path) -> None:
    """Let the link `latest` beside a result point to it, so that its experiment's folder stands for it.

    Raises: StoreError when the link cannot be made.
    """
    link = folder.parent / LATEST
    scratch = folder.parent / f".{LATEST}.{os.getpid()}"
    try:
        if link.is_symlink() and os.readlink(link) == folder.name:
            return
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(folder.name)
        os.replace(scratch, link)
    except OSError as error:
        raise StoreError(f"{link}: cannot be written ({error.strerror or error}); check the permissions") from None


def finished(folder: Path) -> Result | None:
    """The result in `folder`, or None when there is none. Raises: StoreError for a damaged one."""
    return read_result(folder) if (folder / RESULT_FILE).is_file() else None


def read_result(path: str | Path) -> Result:
    """Read a result: its folder, its result.json, or the experiment's folder, meaning its only or latest result.

    Raises: StoreError when there is none, it is unclear which, or it is damaged.
    """
    path = Path(path)
    folder = path.parent if path.name == RESULT_FILE else path
    if not (folder / RESULT_FILE).is_file():
        folder = _only_result(folder)
    file = folder / RESULT_FILE
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_RESULT_BYTES + 1)
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror or error}); check the path") from None
    if len(data) > MAX_RESULT_BYTES:
        raise StoreError(f"{file}: is larger than {MAX_RESULT_BYTES >> 20} MiB; this is no result of mpnet")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise StoreError(f"{file}: is not whole JSON; run the experiment again with --force") from None
    _check(document, file)
    return Result(folder, document)


def _check(document: Any, file: Path) -> None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise StoreError(f"{file}: is no result of mpnet; name a folder that `mpnet run` wrote")
    if document.get("version") != VERSION:
        raise StoreError(
            f"{file}: has format version {str(document.get('version'))[:20]}, this mpnet reads {VERSION}; run again"
        )
    for key, kind in _SECTIONS.items():
        if not isinstance(document.get(key), kind):
            raise StoreError(f"{file}: section {key!r} is missing or damaged; run the experiment again with --force")
    for name, value in document["metrics"].items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise StoreError(f"{file}: metric {name[:40]!r} is not a number; run the experiment again with --force")


def _only_result(folder: Path) -> Path:
    try:
        found = sorted(entry for entry in folder.iterdir() if _ID.match(entry.name) and (entry / RESULT_FILE).is_file())
    except (OSError, ValueError):
        found = []
    if len(found) == 1:
        return found[0]
    latest = folder / LATEST
    if found and latest.is_symlink() and (folder / os.readlink(latest)) in found:
        return folder / os.readlink(latest)
    if found:
        names = ", ".join(entry.name for entry in found[:8])
        raise StoreError(f"{folder}: holds {len(found)} results ({names}); name one of them")
    raise StoreError(f"{folder}: holds no result; name a folder that `mpnet run` wrote, such as runs/<name>/<id>")


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    """The umask, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
