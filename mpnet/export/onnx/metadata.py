# SPDX-License-Identifier: MIT
"""What travels with the file in metadata_props."""

from __future__ import annotations

import json
from typing import Sequence

from mpnet.export import Configuration
from mpnet.export.description import description


def metadata(configuration: Configuration, flavour: str, outputs: Sequence[str], with_boxes: bool) -> dict[str, str]:
    """Text by name, all of it JSON but what is one word. The same configuration gives the same text.

    outputs: names of the tensors that leave the file, in the order of the heads.
    """
    described = {
        **description(configuration, flavour, "NCHW", outputs),
        "boxes": "centre x, centre y, width, height relative to the input" if with_boxes else "",
    }
    return {
        key: value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
        for key, value in described.items()
    }
