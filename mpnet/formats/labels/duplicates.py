# SPDX-License-Identifier: MIT
"""Objects that a file labels twice: the same image, class and box. Every second one would be missed for ever, so one counts."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from mpnet.data.dataset import ImageRecord
from mpnet.messages import shown

LabelledObject = tuple[int, int, Sequence[float], float, bool]
"""Image position, class index, box (x, y, width, height) in pixels, area in square pixels, whether it is a crowd."""

NO_OBJECT = "no image has a labelled object, so nothing can be found or missed: agreement is measured, accuracy is not"


def without_duplicates(
    objects: Sequence[LabelledObject], images: Sequence[ImageRecord]
) -> tuple[list[LabelledObject], tuple[str, ...]]:
    """Return the objects, each once, in their order, and a note where some were there more than once.

    images: the records that the objects' positions are in, for the note.
    """
    distinct: dict[tuple[int, int, tuple[float, ...], bool], LabelledObject] = {}
    duplicates: list[LabelledObject] = []
    for labelled in objects:
        image, index, box, _, crowd = labelled
        if distinct.setdefault((image, index, tuple(box), crowd), labelled) is not labelled:
            duplicates.append(labelled)
    if not duplicates:
        return list(objects), ()
    example = Path(images[duplicates[0][0]].path).name
    note = (
        f"the same class and box is labelled twice in an image {len(duplicates)} times (of {len(objects)} objects) and counts "
        f"once, for example in {shown(example)}"
    )
    return list(distinct.values()), (note,)
