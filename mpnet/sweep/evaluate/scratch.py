# SPDX-License-Identifier: MIT
"""Large arrays that several processes map: files that vanish with the process that made them, killed or not."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path
from typing import IO, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import StoreError
from mpnet.messages import bytes_text

# A file that is open but no longer has a name can be opened again through here, and goes with its last user.
_NAMELESS = sys.platform.startswith("linux") and Path("/proc/self/fd").is_dir()


class Scratch:
    """Arrays on disk for as long as this object is open."""

    def __init__(self) -> None:
        self._files: list[IO[bytes]] = []
        self._names: list[str] = []

    def array(self, shape: Sequence[int]) -> tuple[NDArray[np.float32], str]:
        """Allocate a new float32 array of zeros, and the path under which other processes can map it.

        Raises: StoreError when there is no room for it.
        """
        size = int(np.prod(shape)) * 4
        try:
            file = tempfile.NamedTemporaryFile(prefix="mpnet-sweep-", suffix=".npy", delete=False)  # noqa: SIM115
            self._files.append(file)
            self._names.append(file.name)
            header: dict[str, object] = {"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}
            np.lib.format.write_array_header_1_0(file, header)
            file.flush()
            start = file.tell()
            # Allocated, not only promised: writing to a mapping of a full disk would kill the process.
            os.posix_fallocate(file.fileno(), 0, start + size)
            path = file.name
            if _NAMELESS:
                path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
                os.unlink(self._names.pop())
            return np.memmap(path, dtype="<f4", mode="r+", offset=start, shape=tuple(shape)), path
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM):
                raise StoreError(
                    f"{tempfile.gettempdir()}: a file for images cannot be made ({error.strerror}); raise that "
                    f"limit, or set TMPDIR to another folder"
                ) from None
            raise StoreError(
                f"{tempfile.gettempdir()}: no room for {bytes_text(size)} of images ({error.strerror}); "
                f"free some space or set TMPDIR to another folder"
            ) from None

    def close(self) -> None:
        """Remove all files of these arrays."""
        for file in self._files:
            file.close()
        for name in self._names:
            os.unlink(name)
        self._files, self._names = [], []
