# SPDX-License-Identifier: MIT
"""Layer-wise error for the terminal."""

from __future__ import annotations

import math
from typing import Sequence

from rich.console import Console

from mpnet.config.measures import measure
from mpnet.diagnose.analysis_document import AnalysisDocument, LayerRow, StepRow
from mpnet.engine.verify import StepCheck
from mpnet.messages import percent_text
from mpnet.model.plan_key import short_key
from mpnet.quantization.measure import sparkline
from mpnet.report.text.terminal import print_table


def print_analysis(document: AnalysisDocument, console: Console, rows: int) -> None:
    """Print the document of `mpnet analyze`: layers and steps, worst first, at most `rows` of each; what to keep."""
    console.print(
        f"{document.name}, precision {short_key(document.precision_key)}: {document.images} images against fp32; "
        f"SQNR of the heads {_decibels(document.head_sqnr_db)}"
    )
    _print_layers(document.layers, console, rows)
    _print_steps(document.steps, console, rows)
    _print_default_scheme(document, console)
    _print_keep(document, console)


def _print_default_scheme(document: AnalysisDocument, console: Console) -> None:
    """Print one line, and the options to paste, where the default quantisation agrees better than the given one."""
    scheme, keep = document.default_quantization, document.keep
    if scheme is None or scheme.agreement <= keep.given.agreement:
        return
    lead = "the quantisation itself costs most" if scheme.gains_more else "the quantisation costs something by itself"
    raised_text = f" and raising layers {keep.raised.agreement:.2f} (below)" if keep.layers else ""
    given_options = ", ".join(f"{row.option} {row.given} (default {row.default})" for row in scheme.differences)
    console.print(
        f"\n{lead}: {measure(keep.measure).label} on {keep.pictures} images is {keep.given.agreement:.2f}; the default scheme "
        f"gives {scheme.agreement:.2f} for no bit operation more{raised_text}; given: {given_options}",
        markup=False,
        soft_wrap=True,
    )
    console.print(scheme.yaml, markup=False, soft_wrap=True)


def _print_keep(document: AnalysisDocument, console: Console) -> None:
    """Print what the given configuration is, what would be raised over it, and what that brings and costs."""
    keep = document.keep
    choices = [f"default {keep.kept.default}"] if keep.kept.default else ["the cfg's own precisions"]
    choices += [f"{selector}: {precision}" for selector, precision in keep.kept.layers.items()]
    console.print(f"\nthe given configuration stays: {', '.join(choices)}", markup=False)
    if not keep.layers:
        console.print(
            f"no layer within {keep.macs_percent:g} % of the MACs is worth a higher precision: none that was "
            f"tried agrees better with the baseline on {keep.pictures} images"
        )
        return
    noise = sum(row.noise_percent for row in document.layers if row.layer in keep.layers)
    configuration, raised, heads = keep.given, keep.raised, keep.heads
    extra_percent = 100 * (raised.bit_operations / max(1, configuration.bit_operations) - 1)
    console.print(
        f"worth a higher precision within {keep.macs_percent:g} % of the MACs: {len(keep.layers)} layers with "
        f"{raised.macs_percent:.1f} % of the MACs and {noise:.0f} % of the noise"
    )
    heads_text = (
        "" if heads is None else f"; {heads.agreement:.2f} with the heads alone, {heads.macs_percent:.1f} % of the MACs"
    )
    console.print(
        f"{measure(keep.measure).label} on {keep.pictures} images: {configuration.agreement:.2f} -> "
        f"{raised.agreement:.2f} for {percent_text(extra_percent, signed=True)} bit operations{heads_text}"
    )
    for row in keep.over:
        console.print(f"this changes a choice of yours: {row.name} is {row.precision} by {row.said}", markup=False)
    console.print(keep.yaml, markup=False, soft_wrap=True)


def _print_layers(layers: Sequence[LayerRow], console: Console, rows: int) -> None:
    cells = [
        [
            str(row.layer),
            row.name,
            row.precision,
            f"{row.macs_percent:.1f} %",
            percent_text(row.raised_bit_operations_percent, signed=True),
            f"{row.noise_percent:.1f} %",
            _decibels(row.alone_db),
            _decibel(row.local.sqnr_db),
            _decibel(row.cumulative.sqnr_db),
            f"{row.cumulative.cosine:.6f}",
            f"{row.input_channel_spread:.1f}",
            "" if row.weight_channel_spread is None else f"{row.weight_channel_spread:.1f}",
            ", ".join(row.remedies),
        ]
        for row in layers[:rows]
    ]
    columns = [
        "#",
        "layer",
        "precision",
        "MACs",
        "raised costs",
        "noise",
        "heads, this one alone",
        "local",
        "cumulative",
        "cosine",
        "input's channels",
        "filters",
        "remedies",
    ]
    _print_table(
        "layers by the noise that they alone bring to the heads",
        columns,
        cells,
        console,
        len(layers) - rows,
        "layers",
        left=(1, 2, 12),
        optional=(12, 10, 11, 4, 6, 8, 7, 9),
    )
    if any(row.remedies for row in layers[:rows]):
        console.print(
            "input's channels, filters: the largest range over the median; remedies: of layers with much of the noise\n"
        )


def _print_steps(steps: Sequence[StepRow], console: Console, rows: int) -> None:
    rounding = [(step, step.local) for step in steps if step.local is not None]
    cells = []
    for step, local in rounding[:rows]:
        per_scale, saturated = local.rmse_per_scale, local.saturated
        cells.append(
            [
                str(step.step),
                f"{step.operation} for {step.name}",
                _decibel(local.sqnr_db),
                f"{local.cosine:.6f}",
                "" if per_scale is None else f"{per_scale:.3f}",
                "" if saturated is None else f"{100 * saturated:.3f} %",
                _decibel(step.cumulative.sqnr_db),
                f"{local.minimum:.4g} to {local.maximum:.4g}",
                sparkline(step.histogram),
            ]
        )
    columns = ["step", "what", "SQNR", "cosine", "RMSE/scale", "saturated", "cumulative", "fp32 range", "histogram"]
    _print_table(
        "steps by the error that they alone make",
        columns,
        cells,
        console,
        len(rounding) - rows,
        "steps that round",
        left=(1, 7, 8),
        optional=(6, 8, 7, 3, 5, 4),
    )


def print_checks(images: int, checks: Sequence[StepCheck], console: Console) -> None:
    """Print what `mpnet run --verify` found."""
    codes = [check for check in checks if check.operation == "Quantize"]
    sums = [check for check in checks if check.operation != "Quantize"]
    failed_checks = [check for check in checks if check.differing]
    share = max((check.share for check in sums), default=0.0)
    console.print(
        f"simulation against kernels on {images} images: {len(codes)} Quantize steps, "
        f"{sum(check.values for check in codes):,} codes, {sum(check.differing for check in codes)} differ; "
        f"{len(sums)} int8 convolutions, largest difference {100 * share:.1f} % of what rounding allows"
    )
    for check in failed_checks:
        console.print(
            f"FAILED: step {check.number}, {check.operation} for {check.name}: {check.differing} of "
            f"{check.values} values beyond the promise, largest difference {check.largest:.4g}"
        )


def _print_table(
    title: str,
    columns: Sequence[str],
    rows: list[list[str]],
    console: Console,
    hidden_count: int,
    noun: str,
    left: Sequence[int],
    optional: Sequence[int],
) -> None:
    print_table(console, columns, rows, title, left=left, keys=2, optional=optional, fold=())
    if hidden_count > 0:
        console.print(f"... and {hidden_count} more {noun}; --rows, --csv or --json show all")


def _decibel(value: float | None) -> str:
    return "exact" if value is None or value == math.inf else f"{value:.1f} dB"


def _decibels(values: Sequence[float | None]) -> str:
    return " ".join(map(_decibel, values))
