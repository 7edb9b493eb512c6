# SPDX-License-Identifier: MIT
"""The check of engines: which layers a program runs in another precision than they are asked for."""

from __future__ import annotations

from mpnet.backends import backends
from mpnet.backends.deployment import deploy
from mpnet.backends.placement import placements
from mpnet.diagnose.doctor.finding import Check, Finding
from mpnet.diagnose.doctor.patient import Patient
from mpnet.errors import EngineError, MpnetError
from mpnet.formats.documents.target_file import target_file
from mpnet.messages import counted
from mpnet.model.precision import USUAL_NAMES
from mpnet.trial.defaults import OWN_ENGINES, refused_layers
from mpnet.trial.identity import configuration_of

NAMED = 4
"""Layers that a finding names."""


def find_fallbacks(patient: Patient) -> tuple[list[Finding], str]:
    """Find layers that an engine runs otherwise: by what its form expresses, and by the program where it is here."""
    engines = [name for name in patient.engines if name not in (*OWN_ENGINES, "mprun")]
    if not engines:
        return [], "no other program was named; --target names one"
    findings, remarks = [], []
    for engine in engines:
        found, remark = _find_in(patient, engine)
        findings += found
        remarks.append(f"{engine}: {remark}")
    return findings, "; ".join(remarks)


def _find_in(patient: Patient, engine: str) -> tuple[list[Finding], str]:
    wanted, network = patient.plan.precision, patient.network
    target = target_file(engine)
    refused = refused_layers(network, target)
    fallen: dict[tuple[str, str], list[int]] = {}
    why: dict[tuple[str, str], str] = {}
    for layer in network.convolutions:
        base = wanted[layer.index].base
        if layer.name in refused.get(base, ()):
            fallen.setdefault((base, "nothing"), []).append(layer.index)
        elif base in USUAL_NAMES and base not in target.precisions:
            fallen.setdefault((base, "a wider precision"), []).append(layer.index)
    remark = "by what its form can express"
    if engine in backends() and not fallen:
        try:
            deployment = deploy(engine, configuration_of(patient.bench, wanted))
        except EngineError as error:
            return [_refuse(patient, engine, str(error))], "it refuses the file"
        except MpnetError as error:
            return [], str(error)
        configuration = configuration_of(patient.bench, wanted)
        rows = placements(configuration, deployment.exported, deployment.executed)
        remark = f"as {deployment.version} runs it" if deployment.executed else "it cannot be asked"
        for row in rows:
            if row.falls_back:
                kind = (row.asked, row.executed or row.written)
                fallen.setdefault(kind, []).append(row.index)
                why[kind] = row.why
    return [_describe(patient, engine, *kind, layers, why.get(kind, "")) for kind, layers in fallen.items()], remark


def _describe(patient: Patient, engine: str, asked: str, executed: str, layers: list[int], why: str) -> Finding:
    named = ", ".join(patient.name_layer(index) for index in layers[:NAMED]) + (" and others" if len(layers) > NAMED else "")
    runs = f"runs in {executed}" if executed != "nothing" else "cannot be expressed in its form"
    total, reason = len(patient.network.convolutions), f" ({why})" if why else ""
    return Finding(
        FALLBACKS.name,
        engine,
        f"{len(layers)} of {counted(total, 'layer')} with weights wanted in {asked} {runs}: {named}{reason}",
        {"layers": float(len(layers)), "of": float(total)},
        f"mpnet init --target {engine}, whose sweep searches only what {engine} runs",
    )


def _refuse(patient: Patient, engine: str, reason: str) -> Finding:
    return Finding(
        FALLBACKS.name,
        engine,
        f"refuses the configuration: {reason}",
        {"layers": float(len(patient.network.convolutions))},
        f"mpnet init --target {engine}, whose sweep searches only what {engine} runs",
    )


FALLBACKS = Check("fallbacks", "layers that the program asked for runs in another precision", find_fallbacks)
