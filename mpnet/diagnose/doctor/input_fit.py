# SPDX-License-Identifier: MIT
"""Does the preprocessing fit the network? Other orders of colours, ranges of values and ways to fit images in are tried.

With labels an image's score is 2 m / (d + n): m the sum of the scores of detections that find an object, d that of all
detections, n the number of objects. Wrong boxes lower it as missed objects do, so that a network whose outputs are saturated
has a low one. Of a classifier it is whether the class is right. Without labels it is the mean of the five best scores, which
saturated outputs raise: ranges of values are then told by the statistics that the first batch norm has kept from training, and
nothing is said of ranges where these are folded.

A form of the input is named as wrong only where another one is better by a one-sided t-test over images, at ERROR divided by
the number of forms that were tried, and by at least LEAST_GAIN. Of each factor that differs, the finding is held against the
best form with that factor as it is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.data.classifications import Classifications
from mpnet.data.detections import Detections
from mpnet.detection.preprocess import geometry_array
from mpnet.diagnose.doctor.finding import Check, Finding
from mpnet.diagnose.doctor.patient import Patient
from mpnet.engine.session import Session
from mpnet.errors import EngineError
from mpnet.evaluation.intervals import t_quantile
from mpnet.evaluation.match import Truths, match
from mpnet.importing.file_metadata import Pixels
from mpnet.messages import counted
from mpnet.model.layers import ConnectedSpec
from mpnet.model.task import CLASSIFICATION

ERROR = 0.01
LEAST_GAIN, LEAST_GAIN_UNLABELLED = 0.05, 0.1
"""Of the mean score of images, from 0 to 1."""
TIE = 0.02
"""Of the mean score: what forms may differ by to be as good, such as means that a batch norm takes off anyway."""
LEAST_IMAGES = 8
SEEN_SCORE = 0.1
"""Detections with less do not count."""
BEST = 5
_GROSS, _NEAR = math.log(16), math.log(4)
"""Logarithms of ratios of variances: what no training data have against what these images may have."""

VALUES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "0 to 1": ((0.0,), (255.0,)),
    "0 to 255": ((0.0,), (1.0,)),
    "-1 to 1": ((127.5,), (127.5,)),
    "ImageNet's mean and deviation": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "0 to 255 less ImageNet's mean": ((123.68, 116.78, 103.94), (1.0,)),
}
"""(mean, deviation) by name: values enter as (value - mean) / deviation, red first."""


@dataclass(frozen=True)
class InputFit:
    """What was measured: the mean score and the scores of images, float64 (images,), of each form of the input.

    given: the form as it is. variance_errors: of each form, how far the first batch norm is from what it has kept.
    """

    given: Pixels
    scores: Mapping[Pixels, NDArray[np.float64]]
    variance_errors: Mapping[Pixels, float]
    is_labelled: bool

    @property
    def best(self) -> Pixels:
        """Return the form with the highest mean; of those that are nearly as high the first, which is the simplest."""
        means = {form: float(scores.mean()) for form, scores in self.scores.items()}
        highest = max(means.values())
        return next(form for form, mean in means.items() if mean >= highest - TIE)

    def exceeds(self, form: Pixels, reference: Pixels) -> bool:
        """Return whether a form is shown to be better than another."""
        gains = self.scores[form] - self.scores[reference]
        count = len(gains)
        least = LEAST_GAIN if self.is_labelled else LEAST_GAIN_UNLABELLED
        if count < LEAST_IMAGES or gains.mean() < least:
            return False
        t = t_quantile(count - 1, ERROR / max(1, len(self.scores) - 1))
        return float(gains.mean() - t * gains.std(ddof=1) / math.sqrt(count)) > 0


def find_input_fit(patient: Patient) -> tuple[list[Finding], str]:
    """Find factors of the input that another value fits better."""
    count = len(patient.bench.inputs)
    if patient.network.channels != 3:
        return [], f"the network takes {patient.network.channels} channels, so there are no colours to order"
    if count < LEAST_IMAGES:
        return [], f"{counted(count, 'image')} cannot tell; at least {LEAST_IMAGES} can"
    fit = measure_input_fit(patient)
    findings = _find_values_by_batch_norm(patient, fit)
    best = fit.best
    if best != fit.given and fit.exceeds(best, fit.given):
        for factor, _ in _differences(fit.given, best):
            reference = _with_factor(best, fit.given, factor)
            if reference not in fit.scores or reference == best or fit.exceeds(best, reference):
                findings.append(_describe(patient, fit, best, reference, factor))
    what = "with labels" if fit.is_labelled else "without labels"
    remark = (
        f"{len(fit.scores)} forms of the input on {counted(count, 'image')} {what}; as given {fit.scores[fit.given].mean():.2f}"
    )
    return findings, f"{remark}, best {fit.scores[best].mean():.2f} ({best.text()})"


def measure_input_fit(patient: Patient) -> InputFit:
    """Run the images in every form."""
    given, bench = replace(patient.pixels, note=""), patient.bench
    is_labelled = patient.is_labelled
    session = Session(bench.prepared, patient.fp32, bench.threads)
    truths = Truths.of_dataset(bench.dataset) if is_labelled and bench.kit.task is not CLASSIFICATION else None
    scores: dict[Pixels, NDArray[np.float64]] = {}
    errors = {form: _variance_error(patient, form) for form in _value_forms(given)} if not is_labelled else {}
    forms = list(_forms(given)) if is_labelled else [form for form in _forms(given) if _values(form) == _values(given)]
    with patient.progress("forms of the input", len(forms) + len(_resizes(patient))) as advance:
        for form in forms:
            scores[form] = _measure(patient, session, form, truths)
            advance(1)
        best = max(scores, key=lambda form: float(scores[form].mean()))
        for resize in _resizes(patient):
            for base in dict.fromkeys((best, given)):
                form = replace(base, resize=resize)
                if form not in scores:
                    scores[form] = _measure(patient, session, form, truths)
            advance(1)
    return InputFit(given, scores, {form: error for form, error in errors.items() if error is not None}, is_labelled)


def _resizes(patient: Patient) -> tuple[str, ...]:
    if patient.bench.kit.task is CLASSIFICATION:
        return ("crop", "stretch", "letterbox")
    return ("stretch", "letterbox")


def _forms(given: Pixels) -> Iterator[Pixels]:
    values = dict.fromkeys([_values(given), *VALUES.values()])
    for bgr, (mean, std) in product((given.bgr, not given.bgr), values):
        yield replace(given, bgr=bgr, mean=_ordered(mean, bgr != given.bgr), std=_ordered(std, bgr != given.bgr))


def _value_forms(given: Pixels) -> list[Pixels]:
    return [form for form in _forms(given) if form.bgr == given.bgr]


def _values(pixels: Pixels) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation with red first."""
    return _ordered(pixels.mean, pixels.bgr), _ordered(pixels.std, pixels.bgr)


def _ordered(numbers: tuple[float, ...], is_reversed: bool) -> tuple[float, ...]:
    return numbers[::-1] if is_reversed else numbers


def _measure(patient: Patient, session: Session, form: Pixels, truths: Truths | None) -> NDArray[np.float64]:
    """Return the score of each image in one form; 0 where values are not finite."""
    bench, decoder = patient.bench, patient.bench.decoder
    parts: list[list[object]] = [[] for _ in patient.network.outputs]
    try:
        for batch in bench.inputs.fitted(form.resize).batches(bench.experiment.runtime.batch):
            tensors = session.forward(put_in_form(batch.x, form, patient.pixels), copy=False)
            for output, tensor in enumerate(tensors):
                parts[output].append(decoder.decode(output, tensor, geometry_array(batch.geometry)))
    except EngineError:  # values beyond what floats hold
        return np.zeros(len(bench.inputs))
    predictions = decoder.predictions([decoder.join(pieces) for pieces in parts])
    if isinstance(predictions, Classifications):
        return _score_classes(predictions, bench.dataset.labels if patient.is_labelled else None)
    return _score_boxes(predictions, truths) if truths is not None else _score_confidence(predictions)


def put_in_form(images: NDArray[np.float32], form: Pixels, given: Pixels) -> NDArray[np.float32]:
    """Return what mpnet's network has to be given, so that the file's own network sees the images in another form.

    images: (n, h, w, 3), 0 to 1, red first. given: the form that the network's first layer makes of these.
    """
    pixels = (images[..., ::-1] if form.bgr else images) * np.float32(255)
    seen = (pixels - np.asarray(form.mean, np.float32)) / np.asarray(form.std, np.float32)
    wanted = (seen * np.asarray(given.std, np.float32) + np.asarray(given.mean, np.float32)) / np.float32(255)
    return np.ascontiguousarray(wanted[..., ::-1] if given.bgr else wanted, np.float32)


def _score_boxes(detections: Detections, truths: Truths) -> NDArray[np.float64]:
    seen = detections.select(detections.score >= np.float32(SEEN_SCORE))
    matches, count = match(seen, truths, thresholds=np.array([0.5])), seen.image_count
    hit = matches.truth >= 0
    found = np.bincount(matches.image[hit], matches.score[hit], count)
    every = np.bincount(seen.image_index, seen.score, count)
    objects = truths.counted().sum(axis=1)
    scores: NDArray[np.float64] = np.where(objects > 0, 2 * found / np.maximum(every + objects, 1e-9), 1 / (1 + every))
    return scores


def _score_confidence(detections: Detections) -> NDArray[np.float64]:
    scores = np.zeros((detections.image_count, BEST))
    for image in range(detections.image_count):
        best = np.sort(detections.score[detections.image_index == image])[::-1][:BEST]
        scores[image, : len(best)] = best
    means: NDArray[np.float64] = scores.mean(axis=1)
    return means


def _score_classes(classes: Classifications, labels: NDArray[np.int32] | None) -> NDArray[np.float64]:
    if labels is None:
        return classes.score[:, 0].astype(np.float64)
    is_right: NDArray[np.float64] = (classes.best == labels).astype(np.float64)
    return is_right


def _variance_error(patient: Patient, form: Pixels) -> float | None:
    """Return how far the first batch norm's variances are from those that the images give: the median of |log ratio|.

    None where no convolution with batch norm reads the image.
    """
    bench, network = patient.bench, patient.network
    layer = next((layer for layer in network.convolutions if layer.inputs == (-1,)), None)
    if layer is None or isinstance(layer, ConnectedSpec) or layer.groups != 1 or layer.dilation not in (1, (1, 1)):
        return None
    weights = bench.weights.layers[layer.index]
    if weights.variances is None:
        return None
    size = weights.weights.shape[2:]
    sums = squares = None
    positions = 0
    for batch in bench.inputs.batches(1):
        windows = np.lib.stride_tricks.sliding_window_view(put_in_form(batch.x, form, patient.pixels)[0], size, axis=(0, 1))
        sampled = windows[:: 2 * size[0], :: 2 * size[1]]
        results = np.einsum("yxchw,ochw->yxo", sampled, weights.weights, optimize=True).reshape(-1, len(weights.weights))
        sums = results.sum(0, np.float64) + (0 if sums is None else sums)
        squares = (results.astype(np.float64) ** 2).sum(0) + (0 if squares is None else squares)
        positions += len(results)
    if sums is None or squares is None:
        return None
    variances = np.maximum(squares / positions - (sums / positions) ** 2, 1e-12)
    return float(np.median(np.abs(np.log(variances / np.maximum(weights.variances.astype(np.float64), 1e-12)))))


def _find_values_by_batch_norm(patient: Patient, fit: InputFit) -> list[Finding]:
    errors = fit.variance_errors
    if fit.given not in errors:
        return []
    best = min(errors, key=lambda form: (errors[form], form != fit.given))
    if errors[fit.given] < _GROSS or errors[best] > _NEAR:
        return []
    return [
        Finding(
            INPUT_FIT.name,
            patient.source,
            f"values of pixels enter as {_name_values(fit.given)}; the first batch norm was trained on {_name_values(best)}",
            {"variance_ratio_given": math.exp(errors[fit.given]), "variance_ratio_best": math.exp(errors[best])},
            _remedy(patient, best, "values"),
        )
    ]


def _differences(given: Pixels, best: Pixels) -> list[tuple[str, str]]:
    """Return the factors in which two forms differ, and what they are in the second."""
    found = []
    if given.bgr != best.bgr:
        found.append(("colours", "BGR" if best.bgr else "RGB"))
    if _values(given) != _values(best):
        found.append(("values", _name_values(best)))
    if given.resize != best.resize:
        found.append(("resize", best.resize))
    return found


def _with_factor(best: Pixels, given: Pixels, factor: str) -> Pixels:
    """Return the best form with one factor as it is given."""
    if factor == "resize":
        return replace(best, resize=given.resize)
    if factor == "colours":
        return replace(best, bgr=given.bgr, mean=best.mean[::-1], std=best.std[::-1])
    mean, std = _values(given)
    return replace(best, mean=_ordered(mean, best.bgr), std=_ordered(std, best.bgr))


def _name_values(pixels: Pixels) -> str:
    values = _values(pixels)
    return next((name for name, pair in VALUES.items() if pair == values), f"mean {values[0]}, deviation {values[1]}")


_WRONG = {
    "colours": "colours enter in the order {}; {} fits better",
    "values": "values of pixels enter as {}; {} fits better",
    "resize": "images are fitted in by {}; {} fits better",
}


def _describe(patient: Patient, fit: InputFit, best: Pixels, reference: Pixels, factor: str) -> Finding:
    as_given = dict(_differences(best, fit.given))[factor]
    fitting = dict(_differences(fit.given, best))[factor]
    before = fit.scores.get(reference, fit.scores[fit.given])
    what = "mean score of images" if fit.is_labelled else "mean of the best scores"
    return Finding(
        INPUT_FIT.name,
        patient.source,
        f"{_WRONG[factor].format(as_given, fitting)} ({what} {fit.scores[best].mean():.2f} against {before.mean():.2f})",
        {"given": float(before.mean()), "best": float(fit.scores[best].mean()), "images": float(len(before))},
        _remedy(patient, best, factor),
    )


def _remedy(patient: Patient, best: Pixels, factor: str) -> str:
    """Return what puts the whole form right: all options together, since one run of `mpnet import` takes them."""
    if factor == "resize":
        return f"--set detection.resize={best.resize}"

    def numbers(values: tuple[float, ...]) -> str:
        return ",".join(f"{value:g}" for value in values)

    options = [f"--mean {numbers(best.mean)}", f"--std {numbers(best.std)}", *(["--bgr"] if best.bgr else [])]
    return patient.write_import(" ".join([*options, f"--resize {best.resize}"]))


INPUT_FIT = Check("input", "preprocessing that does not fit the network: colours, values, resizing", find_input_fit)
