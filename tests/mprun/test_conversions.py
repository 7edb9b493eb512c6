# SPDX-License-Identifier: MIT
"""mprun leaves the same conversions of the image to the convolutions that read them as a session."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest

from mpnet.engine.bind import image_conversions
from mpnet.engine.fuse import fuse_plan
from mpnet.export.bundle.write import bundle_bytes
from mpnet.formats.cfg.read import parse_cfg
from tests.engine.family import family_cfg
from tests.mprun import cases
from tests.mprun.conftest import Program

NETWORKS = {
    **cases.NETWORKS,
    **cases.INTEGER_ONLY,
    **{name: partial(family_cfg, name) for name in ("antialiasing", "strides", "pools", "shortcuts")},
}


@pytest.fixture(scope="module")
def program(mprun: Program, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return conversions.c over the library."""
    path = tmp_path_factory.mktemp("conversions") / "conversions"
    mprun.compile(repository / "tests/mprun/conversions.c", path)
    return path


def test_conversions_of_the_image_are_deferred_as_in_a_session(program: Path, tmp_path: Path) -> None:
    deferred = 0
    for name, text in NETWORKS.items():
        network = parse_cfg(text(), name)
        draw = cases.integer_configuration if name in cases.INTEGER_ONLY else cases.configuration
        for seed in range(8):
            configuration = draw(network, seed)
            (tmp_path / "net.mpnet").write_bytes(bundle_bytes(configuration, profile=False)[0])
            printed = subprocess.run([program, tmp_path / "net.mpnet"], check=True, capture_output=True, text=True).stdout
            expected = sorted(image_conversions(fuse_plan(configuration.plan)))
            assert list(map(int, printed.split())) == expected, (name, seed)
            deferred += len(expected)
    assert deferred > 10
