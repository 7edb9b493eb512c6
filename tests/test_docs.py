"""The examples of the documentation run and give what they say."""

from __future__ import annotations

import doctest
from pathlib import Path


def test_api_page(repository: Path) -> None:
    failed, attempted = doctest.testfile(str(repository / "docs" / "api.md"), module_relative=False)
    assert attempted > 20
    assert failed == 0
