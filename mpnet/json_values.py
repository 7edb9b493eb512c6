# SPDX-License-Identifier: MIT
"""The types of what JSON can hold, for values whose shape no dataclass declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Sequence, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = "None | bool | int | float | str | Sequence[Json] | Mapping[str, Json]"
else:
    # `formats.documents.typed` reads the types of fields when it runs, where a field of this one takes any value.
    Json = object
JsonObject = Mapping[str, Json]
