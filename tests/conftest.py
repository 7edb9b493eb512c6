"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real networks, pictures and reference results for developers; users do not have them."""
    folder = Path(os.environ.get("MPNET_SHARED", REPOSITORY.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"SKIPPED WITHOUT REAL DATA: no folder {folder} (set MPNET_SHARED)")
    return folder
