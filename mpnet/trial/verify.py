# SPDX-License-Identifier: MIT
"""The comparison of an experiment's int8 kernels with simulation, on some of its images."""

from __future__ import annotations

from mpnet.engine.verify import StepCheck, Verifier
from mpnet.trial.inputs import spread
from mpnet.trial.workbench import Workbench

VERIFY_IMAGES = 16


def verify(bench: Workbench, images: int = VERIFY_IMAGES) -> tuple[int, tuple[StepCheck, ...]]:
    """Check int8 kernels against simulation on some of the workbench's images: (images, checks of the steps).

    Raises: ConfigError when nothing is int8.
    """
    verifier = Verifier(bench.prepared, bench.plan(bench.assign()), bench.threads)
    positions = spread(len(bench.inputs), images)
    return len(positions), verifier.run(batch.x for batch in bench.inputs.batches(2, positions))
