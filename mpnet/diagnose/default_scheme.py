# SPDX-License-Identifier: MIT
"""The default quantisation beside the given one: raising layers mends little where a scheme loses more than they do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Mapping

from mpnet.config.target_file import TargetFile
from mpnet.diagnose.proposal import IMAGES, measure_plans
from mpnet.engine.options import EngineOptions, resolve_options
from mpnet.engine.plan import Plan
from mpnet.model.quantization import QuantizationOptions
from mpnet.progress import Progress, silent
from mpnet.trial.calibration import under_quantization
from mpnet.trial.defaults import declares_quantization, default_quantization
from mpnet.trial.inputs import spread
from mpnet.trial.workbench import Workbench


@dataclass(frozen=True)
class DefaultScheme:
    """The default quantisation, measured with the given precisions on the images of the proposal.

    options:     of all layers. differences: by option in dots, what is given and what the default is.
    agreement, noise: as `MeasuredLayers`.
    """

    options: QuantizationOptions
    differences: Mapping[str, tuple[str, str]]
    agreement: float
    noise: float


def measure_default(
    bench: Workbench, plan: Plan, target: TargetFile | None, progress: Progress = silent
) -> DefaultScheme | None:
    """Measure the default scheme where it quantises a layer of the plan otherwise than the given one.

    None where it does not, and where what is given follows from something else: a quantised model's own cfg, or arithmetic in
    whole numbers alone. target: as `default_quantization`. Raises: as `under_quantization` and `run_plans`.
    """
    codes = [layer.index for layer in plan.network.convolutions if plan.precision[layer.index].carries_scale]
    if not codes or bench.options.integer_only or declares_quantization(bench.network):
        return None
    options = replace(default_quantization(bench.network, target), narrow=bench.experiment.quantization.options.narrow)
    resolved = resolve_options(bench.network, options, batch_norm=bench.options.batch_norm)
    if not _differs(bench.options, resolved, codes):
        return None
    positions = spread(len(bench.inputs), IMAGES)
    default_bench = under_quantization(bench, options).of_images(positions)
    with progress("the default quantisation", len(positions)) as advance:
        [(agreement, noise)] = measure_plans(default_bench, [default_bench.plan(plan.precision)], advance)
    return DefaultScheme(options, _list_differences(bench, default_bench), agreement, noise)


def _differs(given: EngineOptions, default: EngineOptions, layers: list[int]) -> bool:
    """Return whether any of the layers, or the scaling of channels, is another matter."""
    kinds = {options.equalisation or False for scheme in (given, default) for options in scheme.complete.values()}
    return len(kinds) > 1 or any(given.of(layer) != default.of(layer) for layer in layers)


def _list_differences(given: Workbench, default: Workbench) -> dict[str, tuple[str, str]]:
    """Return what most layers have otherwise; where only single layers differ, these."""
    given_values, default_values = _flatten(given.quantization), _flatten(default.quantization)
    names = [name for name in {**given_values, **default_values} if given_values.get(name) != default_values.get(name)]
    return {name: (given_values.get(name, "default"), default_values.get(name, "default")) for name in names}


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in values.items():
        if name == "layers":
            texts[name] = "their own options"
        elif isinstance(value, Mapping):
            texts |= _flatten(value, f"{prefix}{name}.")
        else:
            texts[prefix + name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts
