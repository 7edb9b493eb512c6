# SPDX-License-Identifier: MIT
"""Checks of images and labels: labels that do not fit, images that repeat, images that both calibrate and judge."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from mpnet.data.detections import Detections
from mpnet.diagnose.doctor.finding import Check, Finding
from mpnet.diagnose.doctor.patient import Patient
from mpnet.errors import MpnetError
from mpnet.evaluation.match import Truths, match
from mpnet.formats.images.read import SUFFIXES, probe_all
from mpnet.formats.labels.dataset import names_in
from mpnet.formats.labels.yolo import list_files, read_names, read_text
from mpnet.messages import counted, shown
from mpnet.model.task import CLASSIFICATION
from mpnet.trial.inference import run_plans

LEAST_PAIRS = 20
AGREEING, MAPPED = 0.5, 0.8
"""Shares of found objects: with the label's own class, below which something is wrong; with the class that a renumbering
gives, above which that is what."""
SURE = 0.25


def find_label_problems(patient: Patient) -> tuple[list[Finding], str]:
    """Find numbers of classes that differ, and labels whose numbers of classes mean others than the network's."""
    if patient.label_error:
        return [_describe_label_error(patient)], "labels were left out of the other checks"
    if not patient.is_labelled:
        return [], "there are no labels"
    if patient.bench.kit.task is CLASSIFICATION:
        return [], f"{len(patient.bench.dataset.names)} classes, as the network has"
    return _find_renumbered_classes(patient)


def _describe_label_error(patient: Patient) -> Finding:
    model, classes = patient.experiment.model, patient.network.classes
    evidence = {"classes": float(classes)}
    if model.names is not None:
        try:
            evidence["names"] = float(len(read_names(model.names)))
        except MpnetError:
            evidence["names"] = 0.0
    else:
        try:
            stated = names_in(patient.experiment.data)
        except MpnetError:
            stated = None
        if stated is not None:
            evidence["names"] = float(len(stated))
    largest = _largest_label(patient)
    if largest is not None:
        evidence["largest_label"] = float(largest)
    if evidence.get("names", classes) != classes:
        remedy = f"model: {{names: FILE}} with {counted(classes, 'line')}, in the order of the network's classes"
    elif largest is not None and largest >= classes:
        remedy = f"write labels from 0 to {classes - 1}, in the order of the network's classes"
    else:
        remedy = "mend the line that is named"
    return Finding(LABELS.name, patient.experiment.source, f"labels do not fit: {patient.label_error}", evidence, remedy)


def _largest_label(patient: Patient) -> int | None:
    """Return the largest class of the label files of a folder, None where there are none that can be read."""
    data = patient.experiment.data
    if data is None or data.format != "yolo" or data.labels is None:
        return None
    largest = None
    try:
        for file in list_files(data.labels, (".txt",), "labels", "data.labels"):
            for line in read_text(file).split("\n"):
                word = line.split(maxsplit=1)[0] if line.strip() else ""
                if word.isdecimal() and len(word) < 10:
                    largest = max(int(word), -1 if largest is None else largest)
    except MpnetError:
        return largest
    return largest


def _find_renumbered_classes(patient: Patient) -> tuple[list[Finding], str]:
    """Find labels whose classes are the network's in another order, by the objects that it finds."""
    bench = patient.bench
    [outcome] = run_plans(bench, [patient.fp32])
    detections = outcome.predictions
    assert isinstance(detections, Detections)
    sure = detections.select(detections.score >= np.float32(SURE))
    dataset = bench.dataset
    alike = Detections.of(sure.image_count, sure.image_index, np.zeros(len(sure)), sure.score, sure.box)
    order = np.lexsort((-sure.score, sure.image_index))
    truths = Truths.of(dataset.sizes, 1, dataset.image_index, np.zeros_like(dataset.category), dataset.box)
    matches = match(alike, truths, thresholds=np.array([0.5]))
    hit = matches.truth >= 0
    labels = dataset.category[truths.source[matches.truth[hit]]]
    found = sure.category[order][matches.detection[hit]]
    count = len(labels)
    if count < LEAST_PAIRS:
        return [], f"the network finds {counted(count, 'labelled object')}, too few to tell by"
    agreeing = float((labels == found).mean())
    remark = f"of {count} labelled objects that are found, {100 * agreeing:.0f} % have the label's class"
    pairs = Counter(zip(labels.tolist(), found.tolist(), strict=True))
    mapping: dict[int, int] = {}
    for (label, category), _ in pairs.most_common():
        mapping.setdefault(label, category)
    mapped = float(
        np.mean([mapping[label] == category for label, category in zip(labels.tolist(), found.tolist(), strict=True)])
    )
    is_one_to_one = len(set(mapping.values())) == len(mapping) > 1
    if agreeing >= AGREEING or mapped < MAPPED or not is_one_to_one:
        return [], remark
    names = bench.names or dataset.names
    moved = [(label, category) for label, category in sorted(mapping.items()) if label != category]
    some = ", ".join(f"{label} is found as {category} ({shown(names[category])})" for label, category in moved[:4])
    finding = Finding(
        LABELS.name,
        patient.experiment.source,
        f"labels count classes in another order than the network: {some}",
        {"found": float(count), "same_class": agreeing, "after_renumbering": mapped},
        f"write labels in the network's order; by what is found {', '.join(f'{a}→{b}' for a, b in moved)}",
    )
    return [finding], remark


def find_repeated_images(patient: Patient) -> tuple[list[Finding], str]:
    """Find files of the same bytes among the images, and between those that calibrate and those that judge."""
    records = patient.all_images.dataset.images
    counts = Counter(record.sha256 for record in records)
    findings = []
    repeated = sum(count - 1 for count in counts.values())
    data = patient.experiment.data
    if repeated:
        groups = {digest for digest, count in counts.items() if count > 1}
        first = [record.path for record in records if record.sha256 in groups][:2]
        findings.append(
            Finding(
                REPEATED_IMAGES.name,
                str((data and (data.images or data.unlabelled or data.labels)) or patient.source),
                f"{repeated} of {counted(len(records), 'image')} repeat another one byte for byte, for example "
                f"{' and '.join(shown(Path(path).name) for path in first)}: they count as evidence twice",
                {"repeated": float(repeated), "images": float(len(records))},
                "keep each image once: intervals take images as independent",
            )
        )
    folder = None if data is None else data.calibration.images
    if folder is None:
        return findings, f"{counted(len(records), 'image')}; calibration has no images of its own"
    calibration = probe_all(list_files(folder, SUFFIXES, "calibration images", "data.calibration.images"))
    shared = [record for record in calibration if record.sha256 in counts]
    if shared:
        findings.append(
            Finding(
                REPEATED_IMAGES.name,
                str(folder),
                f"{len(shared)} of {counted(len(calibration), 'calibration image')} also judge, for example "
                f"{shown(Path(shared[0].path).name)}: losses come out too small",
                {"shared": float(len(shared)), "calibration_images": float(len(calibration))},
                "data: {calibration: {images: FOLDER}} with images that the data set does not hold",
            )
        )
    return findings, f"{counted(len(records), 'image')}, {counted(len(calibration), 'calibration image')}"


LABELS = Check("labels", "labels whose classes do not fit the network's", find_label_problems)
REPEATED_IMAGES = Check("repeated_images", "images that repeat, or that calibrate and judge", find_repeated_images)
