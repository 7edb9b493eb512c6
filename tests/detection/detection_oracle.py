# SPDX-License-Identifier: MIT
"""Box decoding and suppression written a second time, plainly, in NumPy float32: what the C code is held against."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

F = np.float32


def logistic(x):
    return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(F)


def decode(head, yolo, geometry, confidence):
    """Return [(image, category, score, (cx, cy, w, h))] in no particular order; loops over everything."""
    rows = []
    images, grid_h, grid_w, _ = head.shape
    for n in range(images):
        for r in range(grid_h):
            for c in range(grid_w):
                for a, (anchor_w, anchor_h) in enumerate(yolo.anchors):
                    raw = head[n, r, c].reshape(len(yolo.anchors), -1)[a]
                    v = raw if yolo.new_coords else logistic(raw)
                    size = (raw[2:4] * raw[2:4] * F(4)) if yolo.new_coords else np.exp(raw[2:4].astype(np.float64))
                    stretch = F(yolo.scale_x_y)
                    x, y = (F(v[i]) * stretch - F(0.5) * (stretch - F(1)) for i in (0, 1))
                    ox, oy, width, height = geometry[n]
                    box = (
                        (F(c + x) / grid_w - ox) / width,
                        (F(r + y) / grid_h - oy) / height,
                        size[0] * anchor_w / yolo.net_width / width,
                        size[1] * anchor_h / yolo.net_height / height,
                    )
                    for k in range(yolo.classes):
                        score = F(v[4] * v[5 + k])
                        if v[4] > F(confidence) and score > F(confidence):
                            rows.append((n, k, score, tuple(float(b) for b in box)))
    return rows


def overlap(a, b, kind, beta):
    """Return the IoU of two centre boxes in double, less the distance term."""
    x1, x2 = max(a[0] - a[2] / 2, b[0] - b[2] / 2), min(a[0] + a[2] / 2, b[0] + b[2] / 2)
    y1, y2 = max(a[1] - a[3] / 2, b[1] - b[3] / 2), min(a[1] + a[3] / 2, b[1] + b[3] / 2)
    shared = max(x2 - x1, 0) * max(y2 - y1, 0)
    union = a[2] * a[3] + b[2] * b[3] - shared
    iou = shared / union if union > 0 else 0.0
    if kind == "default":
        return iou
    cw = max(a[0] + a[2] / 2, b[0] + b[2] / 2) - min(a[0] - a[2] / 2, b[0] - b[2] / 2)
    ch = max(a[1] + a[3] / 2, b[1] + b[3] / 2) - min(a[1] - a[3] / 2, b[1] - b[3] / 2)
    d2, c2 = (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2, cw * cw + ch * ch
    return iou - (d2 / c2) ** beta if c2 > 0 else iou


def suppress(rows, kind, threshold, beta):
    """Return those kept of [(category, score, box)] of one image, best first per class, in the order of equals."""
    survivors = []
    for category in sorted({row[0] for row in rows}):
        mine = sorted((row for row in rows if row[0] == category), key=lambda row: -row[1])
        winners = []
        for row in mine:
            if all(overlap(best[2], row[2], kind, beta) <= threshold for best in winners):
                winners.append(row)
        survivors += winners
    return survivors


def fma(a, b, c):
    """Return float32 a * b + c with one rounding, exactly: through rational numbers."""
    return round_to_float32(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


def round_to_float32(value):
    """Return the float32 nearest to a rational number, ties to even."""
    if value == 0:
        return F(0)
    nearest = F(float(value))  # float(Fraction) rounds correctly to double, so this is off by one at most
    best = [nearest, np.nextafter(nearest, F(-np.inf)), np.nextafter(nearest, F(np.inf))]
    return min(best, key=lambda f: (abs(Fraction(float(f)) - value), int(f.view(np.uint32)) & 1))
