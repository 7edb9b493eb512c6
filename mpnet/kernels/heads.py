# SPDX-License-Identifier: MIT
"""Heads in C: made ready, decoded into boxes, suppressed (csrc/detect/). Arrays are C-contiguous."""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array
from mpnet.errors import NonFiniteError
from mpnet.kernels._core import ffi, lib
from mpnet.kernels.core import CFields, address, c_arguments, call, check_status, struct

Floats = NDArray[np.float32]
Boxes = tuple[NDArray[np.int64], NDArray[np.int32], Floats, Floats]
"""Offsets by image (images + 1,), category, score, box (n, 4)."""


def likely_cells(
    objectness: Floats,
    first: int,
    anchors: int,
    confidence: float,
    source: Array,
    row_bytes: int,
    block: int,
    starts: NDArray[np.int64],
    chosen: NDArray[np.int32],
    gathered: NDArray[np.uint8],
) -> None:
    """Find the cells of a head that can give a box, and gather what is read there.

    objectness: raw, (n, h, w, values); first: number of the first anchor's value. source: (n, h, w, ...), row_bytes a cell.
    block: cells that are computed together. starts, chosen, gathered: the results, as mp_likely_cells says.
    Raises: KernelError.
    """
    images, height, width, apart = objectness.shape
    sizes = images, height * width, anchors, apart
    results = starts, chosen, gathered
    raw = address(objectness) + first
    call("finding likely cells", lib.mp_likely_cells, raw, *sizes, confidence, source, row_bytes, block, *results)


def ready_head(
    fields: CFields, arrays: Mapping[str, Array | None], anchors: Floats, classes: int, tensor: Floats, cells: int, out: Floats
) -> None:
    """Make a head that is no [yolo] layer ready to be decoded like one.

    fields: of mp_other_head but `classes` and the arrays, which `arrays` holds. tensor: the head's; out: the result.
    Raises: KernelError.
    """
    pointers = {name: ffi.NULL if array is None else address(array) for name, array in arrays.items()}
    node = np.empty(classes, np.float32)
    head = struct("mp_other_head", {**fields, **pointers, "classes": classes})
    call("a head", lib.mp_ready_head, head, anchors, tensor, cells, node, out)


def ready_imported(fields: CFields, anchors: Floats | None, tensor: Floats, cells: int, out: Floats) -> None:
    """Make another program's head ready. fields: of mp_imported_head. Raises: KernelError."""
    call("a head", lib.mp_ready_imported, struct("mp_imported_head", fields), anchors, tensor, cells, out)


def decode_yolo(
    fields: CFields,
    anchors: Floats,
    tensor: Floats,
    starts: NDArray[np.int64] | None,
    chosen: NDArray[np.int32] | None,
    images: int,
    geometry: Floats,
    confidence: float,
) -> Boxes:
    """Return the boxes of a head with a score above the confidence.

    fields: of mp_yolo_head. starts, chosen: which cells the tensor holds, None for all.
    Raises: NonFiniteError for boxes that are not finite, KernelError.
    """
    head, needed = struct("mp_yolo_head", fields), ffi.new("int64_t *")
    offsets = np.empty(images + 1, dtype=np.int64)
    capacity = 256 * max(images, 4)
    while True:
        category = np.empty(capacity, dtype=np.int32)
        score = np.empty(capacity, dtype=np.float32)
        box = np.empty((capacity, 4), dtype=np.float32)
        scratch = np.empty(lib.mp_decode_scratch(capacity), dtype=np.uint8)
        results = (capacity, scratch, needed, offsets, category, score, box)
        inputs = (head, anchors, tensor, starts, chosen, images, geometry, confidence)
        status = lib.mp_decode_yolo(*c_arguments(*inputs, *results))
        count = int(needed[0])
        if status == lib.MP_NONFINITE:
            raise NonFiniteError(f"a yolo layer's input is not finite (image {count} of the batch)")
        check_status(status, "box decoding")
        if count <= capacity:
            return offsets, category[:count].copy(), score[:count].copy(), box[:count].copy()
        capacity = count


def suppress(heads: Sequence[Boxes], kind: int, threshold: float, beta: float, sizes: Floats) -> Boxes:
    """Return the boxes of all heads that no better one of their class overlaps too much; offsets count them by image.

    kind: MP_NMS_IOU or MP_NMS_DISTANCE. sizes: (images, 2) in pixels. Raises: KernelError.
    """
    images = len(heads[0][0]) - 1
    # A struct does not keep alive what it points to; the heads do.
    candidates = ffi.new("mp_candidates[]", [(images, *c_arguments(*head)) for head in heads])
    count = sum(len(score) for _, _, score, _ in heads)
    fullest = int(np.sum([np.diff(offsets) for offsets, *_ in heads], axis=0).max(initial=0))
    scratch = np.empty(7 * (fullest + lib.MP_NMS_BLOCK), dtype=np.float32)
    offsets = np.empty(images + 1, dtype=np.int64)
    category = np.empty(count, dtype=np.int32)
    score = np.empty(count, dtype=np.float32)
    box = np.empty((count, 4), dtype=np.float32)
    limits, results = (kind, threshold, beta, sizes, fullest), (scratch, offsets, category, score, box)
    call("non-maximum suppression", lib.mp_nms, candidates, len(heads), *limits, *results)
    remaining = int(offsets[-1])
    return offsets, category[:remaining].copy(), score[:remaining].copy(), box[:remaining].copy()
