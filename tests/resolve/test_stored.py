# SPDX-License-Identifier: MIT
"""Names on the command line: runs by folder, trials of sweeps by precision string or pick."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.errors import StoreError
from mpnet.resolve.stored import find_configuration, in_store, split_source
from mpnet.trial.result import Result


def test_a_folder_of_results_stands_for_its_latest_run(result: Result) -> None:
    stored = find_configuration(str(result.folder.parent))
    assert stored.key == result.run.precision.key
    assert stored.result is not None
    assert stored.result.id == result.id
    assert stored.provenance == result.run.provenance
    assert stored.output == result.folder.parent.parent.absolute()
    assert stored.held_out == {}


def test_a_path_that_exists_has_no_key(result: Result, tmp_path: Path) -> None:
    odd = tmp_path / "a:b"
    odd.mkdir()
    assert split_source(str(odd)) == (odd, None)
    assert in_store(str(result.folder)) == (result.folder, None, None)


def test_a_key_behind_a_folder_without_sweeps_is_refused(result: Result) -> None:
    with pytest.raises(StoreError, match="holds no sweep, so 'safe' names nothing in it"):
        find_configuration(f"{result.folder.parent}:safe")
