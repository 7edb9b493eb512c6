# SPDX-License-Identifier: MIT
"""Every plot of a report as data: `svg` draws it for page and papers, `export` writes its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Sequence

import numpy as np

from mpnet.config.measures import leading, measure
from mpnet.model.precision import BY_CODE, PRECISIONS
from mpnet.report.data.figure import Figure, Series
from mpnet.report.data.report_data import LayerError, ReportData
from mpnet.report.data.sensitivity import by_layer

NOISE_BARS = 24
"""Most layers whose noise is drawn, so that their names can be read."""
HEAT_ROWS = 24
"""Most configurations that a heat map shows: rows that can be told apart, with a label each."""


def all_figures(data: ReportData) -> tuple[Figure, ...]:
    """Return every plot for which there is data, in the page's order."""
    figures = [
        front(data),
        layer_noise(data),
        *sensitivities(data),
        *stabilities(data),
        heat(data),
        *errors(data),
        *[histogram(e) for e in data.errors],
        time(data),
        sizes(data),
        classes(data),
    ]
    return tuple(figure for figure in figures if figure is not None)


def _label(name: str) -> str:
    quantity = measure(name)
    return f"{quantity.label} ({quantity.unit})" if quantity.unit and quantity.unit != "%" else quantity.label


def front(data: ReportData) -> Figure | None:
    """Return the accuracy against cost; the front as a line, with intervals where they were drawn."""
    table = data.configurations
    objective, cost = table.objective, table.cost
    if len(table) < 2 or objective not in table.columns or cost not in table.columns:
        return None
    x, y = table.columns[cost], table.columns[objective]
    is_known = np.isfinite(x) & np.isfinite(y)
    others = np.flatnonzero(is_known & ~table.front)
    best = np.flatnonzero(is_known & table.front)
    best = best[np.argsort(x[best], kind="stable")]
    low, high = _intervals(data, best, objective)
    series = [
        Series("measured", x[others].tolist(), y[others].tolist(), "muted"),
        Series("front", x[best].tolist(), y[best].tolist(), "accent", low, high, "line+points"),
    ]
    for row, name in _name_rows(data).items():
        if is_known[row]:
            series.append(Series(name, [x[row]], [y[row]], "baseline" if row == table.baseline else "chosen"))
    columns: dict[str, Sequence[object]] = {"precision": list(table.keys), "front": table.front.tolist()}
    columns.update({name: values.tolist() for name, values in table.columns.items()})
    title = f"{measure(objective).label} against {measure(cost).label}"
    images = data.images_of(objective)
    return Figure(
        "front",
        "xy",
        title,
        _label(cost),
        _label(objective),
        tuple(series),
        columns=columns,
        note=f"on {images}" if images else "",
        # What spans a decade would crowd at one end.
        log=bool(is_known.any() and x[is_known].min() > 0 and x[is_known].max() >= 10 * x[is_known].min()),
    )


def _name_rows(data: ReportData) -> dict[int, str]:
    """Return the names by row: the baseline, and the picks, or the chosen configuration where there are none."""
    table = data.configurations
    names = {} if table.baseline is None else {table.baseline: "baseline"}
    for pick in data.picks:
        if pick.row is not None:
            names[pick.row] = f"{names[pick.row]}, {pick.name}" if pick.row in names else pick.name
    if table.chosen is not None:
        names.setdefault(table.chosen, data.shown_short)
    return names


def _intervals(data: ReportData, rows: Iterable[int], name: str) -> tuple[list[float] | None, list[float] | None]:
    """Return the bounds of each row: the baseline's value plus the paired interval; None when no row has one."""
    start = data.configurations.value(data.configurations.baseline, name)
    found_intervals = [data.intervals.get(int(row), {}).get(name) for row in rows]
    intervals = [interval if interval is not None and interval.tells else None for interval in found_intervals]
    if not any(intervals):
        return None, None
    nan = float("nan")
    return [start + i.low if i else nan for i in intervals], [start + i.high if i else nan for i in intervals]


ALL_BUT = "all but this layer"


def sensitivities(data: ReportData) -> list[Figure]:
    """Return the sensitivities per layer, both ways; one figure per measure that has them.

    A sweep that screened measured single layers by chance: those figures are there where most layers are in them.
    """
    sensitivity_figures = []
    for quantity in leading(data.task):
        name = quantity.name
        entries = by_layer(data.configurations, data.layers, name)
        layers = list(dict.fromkeys(s.layer for s in entries))
        if not layers or (data.layers_by_noise and 2 * len(layers) < len(data.weighted)):
            continue
        series = []
        names = [layer.name for layer in layers]
        for code, precision in dict.fromkeys((s.code, s.precision) for s in entries):
            rows = {s.layer: s for s in entries if s.code == code}  # not every layer has every precision
            alone, kept = ([getattr(rows[x], way) if x in rows else np.nan for x in layers] for way in ("alone", "kept_high"))
            colour = BY_CODE[code].base if code in BY_CODE else "accent"
            ways = (f"only this layer in {precision}", alone, colour), (f"{ALL_BUT} in {precision}", kept, colour + "-light")
            # A strategy may have tried one way alone.
            series += [Series(text, names, values, ink) for text, values, ink in ways if not np.isnan(values).all()]
        columns: dict[str, Sequence[object]] = {
            "layer": [s.layer.index for s in entries],
            "name": [s.layer.name for s in entries],
            "precision": [s.precision for s in entries],
            "only_this": [s.alone for s in entries],
            "all_but_this": [s.kept_high for s in entries],
        }
        absolute = np.isinf(data.configurations.value(data.configurations.baseline, name))
        label = quantity.label if absolute else f"change of {quantity.label}"
        sensitivity_figures.append(
            Figure(
                f"sensitivity-{name}",
                "bars",
                f"{label[0].upper()}{label[1:]} per layer",
                "layer",
                label + (f" ({quantity.unit})" if quantity.unit == "dB" else ""),
                tuple(series),
                columns=columns,
                note="values, not changes: the baseline has no noise" if absolute else "",
            )
        )
    return sensitivity_figures


def layer_noise(data: ReportData) -> Figure | None:
    """Return the noise that lowering each layer brings to the heads, for the layers with most of it; the columns have all."""
    rows = data.layers_by_noise
    if not rows:
        return None
    layer_names = {row.layers: ", ".join(row.names) for row in rows}
    series = []
    for precision in dict.fromkeys(row.precision for row in rows):
        percents = {row.layers: row.noise_percent for row in rows if row.precision == precision}
        shown = list(layer_names)[:NOISE_BARS]
        values = [percents.get(layers, np.nan) for layers in shown]
        names = [layer_names[layers] for layers in shown]
        series.append(Series(f"to {precision}", names, values, PRECISIONS[precision].base))
    columns: dict[str, Sequence[object]] = {
        "layer": [" ".join(map(str, row.layers)) for row in rows],
        "name": [layer_names[row.layers] for row in rows],
        "precision": [row.precision for row in rows],
        "noise": [row.noise for row in rows],
        "noise_percent": [row.noise_percent for row in rows],
        "saved_percent": [row.saved_percent for row in rows],
    }
    return Figure(
        "layer-noise",
        "bars",
        "Noise that lowering each layer brings to the heads",
        "layer",
        "share in the sum (%)",
        tuple(series),
        columns=columns,
        note="most noise first" + (f"; {NOISE_BARS} of {len(layer_names)}" if len(layer_names) > NOISE_BARS else ""),
    )


def stabilities(data: ReportData) -> list[Figure]:
    """Return for each pick in how many of the resampled image sets each layer keeps its precision at the pick's cost."""
    # Without the network only places in precision strings are known, and the shares name layers by their index.
    layer_names = {layer.index: layer.name for layer in data.weighted if layer.kind}
    figures = []
    for pick, rows in data.stability.layers.items():
        percent = {row.layer: row.percent for row in rows}
        if not percent:
            continue
        names = layer_names or {layer: f"layer {layer}" for layer in sorted(percent)}
        shares = [float(percent.get(layer, 0.0)) for layer in names]
        figures.append(
            Figure(
                f"stability-{pick}",
                "bars",
                f"Layers that keep their precision at the cost of {pick}",
                "layer",
                "resampled image sets (%)",
                (Series("keeps its precision", list(names.values()), shares, "accent"),),
                columns={"layer": list(names), "name": list(names.values()), "percent": shares},
            )
        )
    return figures


def heat(data: ReportData) -> Figure | None:
    """Return the precision of each layer (columns) in the best configurations (rows): the front, most accurate on top."""
    table = data.configurations
    if len(table) < 2 or not data.weighted or not {table.objective, table.cost} <= set(table.columns):
        return None
    objective, cost = table.columns[table.objective], table.columns[table.cost]
    front = np.flatnonzero(table.front)
    names_of_rows = _name_rows(data)
    unnamed = [int(row) for row in front[np.lexsort((cost[front], -objective[front]))] if row not in names_of_rows]
    room = HEAT_ROWS - len(names_of_rows)
    sampled = unnamed if len(unnamed) <= room else [unnamed[i * len(unnamed) // room] for i in range(room)]
    rows = sorted({*sampled, *names_of_rows}, key=lambda row: (-objective[row], cost[row]))
    start = table.value(table.baseline, table.cost)
    digits = measure(table.objective).digits
    labels = tuple(
        " · ".join(
            filter(
                None,
                (
                    names_of_rows.get(row, ""),
                    f"{objective[row]:.{digits}f}",
                    f"{100 * cost[row] / start:.0f} %" if start > 0 else "",
                ),
            )
        )
        for row in rows
    )
    keys = tuple(table.keys[row] for row in rows)
    names = tuple(layer.name for layer in data.weighted)
    columns: dict[str, Sequence[object]] = {"precision": list(keys), "named": [names_of_rows.get(row, "") for row in rows]}
    for position, name in enumerate(names):
        columns[name] = [key[position] if position < len(key) else "" for key in keys]
    for name in (table.objective, table.cost):
        columns[name] = [float(table.columns[name][row]) for row in rows]
    note = f"{measure(table.objective).label} and share of the baseline's {measure(table.cost).label} before each row"
    if len(sampled) < len(unnamed):
        note += f"; {len(rows)} of the front's {len(front)}, evenly thinned"
    return Figure(
        "heat",
        "heat",
        "Precision of each layer",
        "layer",
        "",
        cells=keys,
        rows=labels,
        categories=names,
        note=note,
        columns=columns,
    )


def errors(data: ReportData) -> list[Figure]:
    """Return share of noise and SQNR of every layer of the chosen configuration; its table's other figures are columns."""
    if not data.errors:
        return []
    names = [e.name for e in data.errors]
    attribute_of = {"layer": "index", "noise_share": "noise"}
    columns = {
        name: [getattr(e, attribute_of.get(name, name)) for e in data.errors]
        for name in (
            "layer",
            "name",
            "precision",
            "noise_share",
            "sqnr_db",
            "local_sqnr_db",
            "cosine",
            "rmse_over_scale",
            "saturated",
            "low",
            "high",
        )
    }
    noise = Figure(
        "error-noise",
        "bars",
        "Share of the noise at the heads, each layer lowered alone",
        "layer",
        "share (%)",
        (Series("share of noise", names, [100 * e.noise for e in data.errors], "accent"),),
        columns=columns,
    )
    sqnr = Figure(
        "error-sqnr",
        "bars",
        "Signal to noise against fp32",
        "layer",
        "SQNR (dB)",
        (
            Series("cumulative", names, columns["sqnr_db"], "accent"),
            Series("only this layer's rounding", names, columns["local_sqnr_db"], "muted"),
        ),
        columns=columns,
    )
    return [noise, sqnr]


def histogram(error: LayerError) -> Figure | None:
    """Return the histogram of the values that enter a layer, with the range that its integers cover."""
    if not error.histogram:
        return None
    count = len(error.histogram)
    low, high = error.edges
    centres = [low + (high - low) * (i + 0.5) / count for i in range(count)]
    lines = tuple((x, "clip") for x in error.clip) if error.clip else ()
    return Figure(
        f"histogram-{error.index}",
        "histogram",
        f"Values into {error.name}",
        "value",
        "count",
        (Series("values", centres, list(error.histogram), "accent"),),
        lines=lines,
        columns={"value": centres, "count": list(error.histogram)},
    )


def _pairs(data: ReportData, name: str, title: str, label: str, attribute: str) -> Figure | None:
    names = [c.name for c in data.costs]
    baseline = [float(getattr(c, f"baseline_{attribute}")) for c in data.costs]
    chosen = [float(getattr(c, f"chosen_{attribute}")) for c in data.costs]
    if not names or not np.isfinite(baseline + chosen).any():
        return None
    return Figure(
        name,
        "bars",
        title,
        "layer",
        label,
        (Series("baseline", names, baseline, "baseline"), Series("chosen", names, chosen, "accent")),
        columns={"layer": [c.index for c in data.costs], "name": names, "baseline": baseline, "chosen": chosen},
    )


def time(data: ReportData) -> Figure | None:
    """Return the milliseconds per layer, baseline and chosen."""
    return _pairs(data, "time", "Time per layer", "ms", "ms")


def sizes(data: ReportData) -> Figure | None:
    """Return weight bytes per layer, baseline and chosen."""
    weighted = replace(data, costs=tuple(c for c in data.costs if c.baseline_bytes or c.chosen_bytes))
    return _pairs(weighted, "bytes", "Weight bytes per layer", "bytes", "bytes")


def classes(data: ReportData) -> Figure | None:
    """Return the difference of the task's quality per class with its interval, most harmed first, those of few objects last."""
    rows = sorted((c for c in data.classes if c.interval), key=lambda c: (c.is_few, c.interval.difference if c.interval else 0))
    if not rows:
        return None
    intervals, quality = [c.interval for c in rows if c.interval], data.task.quality
    label = f"change of {measure(quality).label}"
    columns: dict[str, Sequence[object]] = {
        "class": [c.name for c in rows],
        "truths": [c.truths for c in rows],
        f"baseline_{quality}": [c.baseline.get(quality, float("nan")) for c in rows],
        f"chosen_{quality}": [c.chosen.get(quality, float("nan")) for c in rows],
        "difference": [i.difference for i in intervals],
        "low": [i.low for i in intervals],
        "high": [i.high for i in intervals],
    }
    return Figure(
        "classes",
        "bars",
        f"C{label[1:]} per class, 95 % intervals",
        "class",
        label,
        (
            Series(
                label,
                [c.name for c in rows],
                [i.difference for i in intervals],
                "accent",
                [i.low for i in intervals],
                [i.high for i in intervals],
            ),
        ),
        columns=columns,
    )
