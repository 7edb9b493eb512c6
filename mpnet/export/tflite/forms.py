# SPDX-License-Identifier: MIT
"""The forms of a plan's tensors in a TensorFlow Lite file: which stay in codes, and how each convolution is written.

A plan quantises before each int8 or int16 convolution and de-scales after it. Where all readers of a result want the
same codes, the convolution can give these at once; else it gives reals. Pooling, upsampling, slices and concatenations
come to the same codes before and after a quantisation, so that codes are carried through them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Literal

from mpnet.engine.operations import Cast, Concat, Convolve, Dequantize, Operation, Quantize, Reorg3d
from mpnet.engine.plan import Plan
from mpnet.export.tflite.rules import TfliteRules
from mpnet.model.network import ConvolutionSpec
from mpnet.quantization.codes import BEYOND, CODED_ACTIVATIONS, Codes, Ranges, codes_of, range_of, spanned_by_sums, sums_before
from mpnet.quantization.scheme import ActivationScheme

Form = Codes | None
"""Codes, or None for reals."""
Way = Literal["float", "hybrid", "coded", "descaled", "simulated"]
"""How a convolution is written. coded: codes in and out. descaled: codes in, its sums in as many bits and turned into reals.
hybrid: reals in and out, int8 within. simulated: on the reals that codes mean."""
Reach = Callable[[Convolve, Codes], float]
"""(a convolution, the codes that it reads) -> the largest magnitude that its sums can have."""


@dataclass
class Forms:
    """The form of each slot of a plan, and of each of its convolutions.

    maps:  of slots that hold codes in the plan: their codes, None where the range is measured on the image.
    stored_forms: the form in which a slot is written by the step that makes it.
    ways:  by number of the step, of convolutions. sums: the codes of their sums where these are codes.
    """

    maps: dict[int, Form]
    stored_forms: dict[int, Form] = field(default_factory=dict)
    ways: dict[int, Way] = field(default_factory=dict)
    sums: dict[int, Codes] = field(default_factory=dict)


def choose_forms(plan: Plan, rules: TfliteRules, sums: Ranges, reach: Reach) -> Forms:
    """Choose forms from the last step to the first: what readers want decides what a step gives.

    sums: ranges of convolutions before their activations, by layer, where somebody has found them. reach: what
    bounds sums of 16 bits where nobody has, since these have codes to spare.
    """
    forms = Forms(_list_code_maps(plan))
    requested_forms: list[list[Form]] = [[] for _ in plan.slots]
    for slot in plan.outputs:
        requested_forms[slot].append(None)
    for number in reversed(range(len(plan.steps))):
        step = plan.steps[number]
        operation, result_forms = step.operation, requested_forms[step.output]
        input_forms: list[Form] = [None]
        if isinstance(operation, Convolve):
            input_forms = [_settle_convolution(forms, plan, rules, sums, reach, number, result_forms)]
        elif isinstance(operation, (Quantize, Cast)):
            input_forms = list(result_forms)
        elif isinstance(operation, Dequantize):
            input_forms = [forms.maps[step.inputs[0]]]
        elif carries_codes(operation):
            form = _find_single(result_forms)
            if form is not None and form.is_wide and isinstance(operation, Reorg3d):
                form = None  # SPACE_TO_DEPTH knows no int16
            forms.stored_forms[step.output] = form
            input_forms = [form]
        for slot in step.inputs:
            for form in input_forms:
                if form not in requested_forms[slot]:
                    requested_forms[slot].append(form)
    return forms


def carries_codes(operation: Operation) -> bool:
    """Return whether the operation and a quantisation by a fixed range may change places."""
    return operation.moves_values or isinstance(operation, Concat)


def _list_code_maps(plan: Plan) -> dict[int, Form]:
    maps: dict[int, Form] = {}
    for step in plan.steps:
        operation = step.operation
        if isinstance(operation, Quantize):
            maps[step.output] = None if operation.range is None else codes_of(operation.scheme, *operation.range)
        elif step.inputs[0] in maps and step.output_precision.carries_scale:
            maps[step.output] = maps[step.inputs[0]]
    return maps


def _find_single(result_forms: list[Form]) -> Form:
    return result_forms[0] if len(result_forms) == 1 else None


def _settle_convolution(
    forms: Forms, plan: Plan, rules: TfliteRules, sums: Ranges, reach: Reach, number: int, result_forms: list[Form]
) -> Form:
    """Settle one convolution; what it takes."""
    step = plan.steps[number]
    assert isinstance(step.operation, Convolve)
    layer = step.operation.layer_of(plan.network)
    if step.operation.weights is None:
        forms.ways[number] = "float"
        return None
    if rules.hybrid and step.operation.precision.multiplies_bytes:
        forms.ways[number] = "hybrid"
        return None
    codes, result = forms.maps[step.inputs[0]], _find_single(result_forms)
    assert codes is not None
    scheme = ActivationScheme().of_bits(codes.bits)
    if result is not None and result.bits != codes.bits:
        result = codes_of(scheme, *range_of(result))  # a convolution gives as many bits as it takes; QUANTIZE follows
    if result is not None and layer.activation in CODED_ACTIVATIONS:
        forms.ways[number], forms.stored_forms[step.output] = "coded", result
        sum_range = spanned_by_sums(result, plan.options.ranges.get(layer.index, range_of(result)))
        forms.sums[number] = (
            result if layer.activation != "leaky" else _find_sum_codes(layer, sums, sum_range, scheme) or result
        )
        return codes
    result_range = plan.options.ranges.get(layer.index) or next(
        (range_of(form) for form in result_forms if form is not None), None
    )
    if result_range is not None and codes.is_wide:
        result_range = BEYOND * result_range[0], BEYOND * result_range[1]
    sum_codes = _find_sum_codes(layer, sums, result_range, scheme)
    if sum_codes is None and codes.is_wide:
        largest = reach(step.operation, codes)
        sum_codes = codes_of(scheme, -largest, largest)
    forms.ways[number] = "simulated" if sum_codes is None else "descaled"
    if sum_codes is not None:
        forms.sums[number] = sum_codes
    return codes


def _find_sum_codes(
    layer: ConvolutionSpec, sums: Ranges, result: tuple[float, float] | None, scheme: ActivationScheme
) -> Codes | None:
    """Return the codes of a convolution's sums, from their range or from that of its result; None where nobody knows either."""
    sum_range = sums.get(layer.index)
    if sum_range is None and result is not None:
        sum_range = sums_before(layer.activation, *result, bits=scheme.bits)
    return None if sum_range is None else codes_of(scheme, *sum_range)
