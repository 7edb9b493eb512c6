# SPDX-License-Identifier: MIT
"""mprun's table of operations is that of Python's classes."""

from __future__ import annotations

import runpy
from pathlib import Path

from mpnet.export.bundle.records import constant


def test_the_committed_table_is_what_the_classes_say(repository: Path) -> None:
    """As tools/list_operations.py writes it."""
    tool = runpy.run_path(str(repository / "tools" / "list_operations.py"))
    assert tool["TARGET"].read_text(encoding="utf-8") == tool["table"]()
    names = tool["classes_by_bundle_name"]()
    assert sorted(constant(f"MPB_{name}") for name in names) == list(range(constant("MPB_OPERATIONS")))


def test_classes_that_share_an_operation_agree_about_values(repository: Path) -> None:
    tool = runpy.run_path(str(repository / "tools" / "list_operations.py"))
    for name, classes in tool["classes_by_bundle_name"]().items():
        assert {cls.moves_values for cls in classes} == {classes[0].moves_values}, name
