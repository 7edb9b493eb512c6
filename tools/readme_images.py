# SPDX-License-Identifier: MIT
"""Makes docs/images/detect.jpg: what `mpnet detect` draws into four scenes of the demo, in fp32 above and int8 below.

mpnet demo --quick
python tools/readme_images.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np

DEMO = Path("runs/demo")
SCENES = ("00005", "00016", "00022", "00041")
TARGET = Path("docs/images/detect.jpg")
SCALE, GAP = 1.25, 6


def detect(folder: Path, precision: str) -> list[np.ndarray]:
    """Return the scenes with boxes drawn, at one precision for all layers."""
    model = [f"--{kind}={DEMO / 'model' / f'demo.{kind}'}" for kind in ("cfg", "weights", "names")]
    scenes = [str(DEMO / "val" / "images" / f"{name}.png") for name in SCENES]
    subprocess.run(
        [sys.executable, "-m", "mpnet", "detect", *model, f"--default={precision}", f"--out={folder}", *scenes], check=True
    )
    images = [cv2.imread(str(folder / f"{name}.png")) for name in SCENES]
    return [cv2.resize(image, None, fx=SCALE, fy=SCALE, interpolation=cv2.INTER_CUBIC) for image in images]


def main() -> None:
    """Tile and write."""
    rows = []
    for precision in ("fp32", "int8"):
        with tempfile.TemporaryDirectory() as folder:
            tiles = [
                cv2.copyMakeBorder(tile, GAP, 0, 0, GAP, cv2.BORDER_CONSTANT, value=(255, 255, 255))
                for tile in detect(Path(folder), precision)
            ]
        row = np.hstack(tiles)
        band = np.full((row.shape[0], 56, 3), 255, np.uint8)
        cv2.putText(band, precision, (4, row.shape[0] // 2), cv2.FONT_HERSHEY_SIMPLEX, 0.55, (40, 40, 40), 1, cv2.LINE_AA)
        rows.append(np.hstack([band, row]))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(TARGET), np.vstack(rows), [cv2.IMWRITE_JPEG_QUALITY, 88])


if __name__ == "__main__":
    main()
