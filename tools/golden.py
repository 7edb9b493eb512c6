# SPDX-License-Identifier: MIT
"""How golden vectors are written."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Mapping

import numpy as np
from numpy.typing import NDArray


def write_arrays(path: Path, arrays: Mapping[str, NDArray]) -> None:
    """Write an .npz, the same bytes for the same arrays: np.savez would put the time of writing into every entry."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, array)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), buffer.getvalue(), zipfile.ZIP_DEFLATED, 9)
