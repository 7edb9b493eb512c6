# SPDX-License-Identifier: MIT
"""Models whose structure was mutated end in a network or in one line."""

from __future__ import annotations

import pytest

from tests.fuzz.import_models import KINDS, available, hunt


@pytest.mark.parametrize("kind", list(KINDS))
def test_mutated_models_are_imported_or_refused_in_one_line(kind: str) -> None:
    if not available(kind):
        pytest.skip(f"SKIPPED WITHOUT {KINDS[kind][2]}: it reads these files")
    assert hunt(kind, 100, 7) == 0
