# SPDX-License-Identifier: MIT
"""The story of `mpnet doctor`: every check looks at the patient, and what it finds or cannot tell is written down."""

from __future__ import annotations

from mpnet.diagnose.doctor.data_set import LABELS, REPEATED_IMAGES
from mpnet.diagnose.doctor.engines import FALLBACKS
from mpnet.diagnose.doctor.finding import Check, CheckOutcome, Diagnosis, Finding
from mpnet.diagnose.doctor.input_fit import INPUT_FIT
from mpnet.diagnose.doctor.patient import Patient
from mpnet.diagnose.doctor.tensors import CHANNEL_RANGES, DEAD_CHANNELS, SHARED_SCALE

CHECKS: tuple[Check, ...] = (LABELS, REPEATED_IMAGES, INPUT_FIT, CHANNEL_RANGES, SHARED_SCALE, DEAD_CHANNELS, FALLBACKS)
"""In the order in which they are made and reported."""


def examine(patient: Patient) -> Diagnosis:
    """Make every check. Raises: DataError for broken images, EngineError naming the layer for values that are not finite."""
    findings: list[Finding] = []
    outcomes = []
    for check in CHECKS:
        found, remark = check.find(patient)
        findings += found
        outcomes.append(CheckOutcome(check.name, len(found), remark))
    return Diagnosis(patient.source, len(patient.bench.inputs), patient.is_labelled, tuple(findings), tuple(outcomes))
