# SPDX-License-Identifier: MIT
"""Runs compared with the first one, as tables and bars for the terminal."""

from __future__ import annotations

from typing import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from mpnet.config.measures import AGREEMENT, measure, names_of
from mpnet.messages import bytes_text, count_text, number_text
from mpnet.model.plan_key import short_key
from mpnet.model.task import Task
from mpnet.report.data.comparison import ClassComparison, ComparedRun, Comparison
from mpnet.report.data.differences import KINDS, few_classes_text, is_few
from mpnet.report.data.task_words import words_of
from mpnet.report.data.words import clean
from mpnet.report.text.operating_point import print_operating_point
from mpnet.report.text.terminal import Share, precision_text, print_table, signed_bar, utf8
from mpnet.speed.latency import doubt_of, short_latency

CLASSES_SHOWN = 12
CHANGES_SHOWN = 12


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print metrics, costs, layers, classes, lost and gained objects."""
    unicode = utf8(console.file)
    _metrics(comparison, console)
    _costs(comparison, console)
    _layers(comparison, console)
    _classes(comparison, console, unicode)
    for name, run in zip(_names(comparison)[1:], comparison.runs[1:], strict=True):
        if run.operating_point:
            print_operating_point(run.operating_point, console, name=name, details=True)
    for run in comparison.runs[1:]:
        if not comparison.missing:
            _changes(run, console, len(comparison.runs) > 2, comparison.task)
    for name, differences in zip(_names(comparison), comparison.protocol_differences, strict=True):
        if differences:
            console.print(f"{clean(name)} differs in protocol: {', '.join(map(clean, differences))}")
    if comparison.missing:
        console.print(f"no intervals, lost or gained objects: {clean(comparison.missing)}")


def _names(comparison: Comparison) -> list[str]:
    """Return the names that tell runs apart, with their ids where names are alike."""
    runs = comparison.runs
    distinct = len({(run.name, bool(run.deployed)) for run in runs}) == len(runs)
    return [
        clean(run.name if distinct else f"{run.name} {run.id[:8]}") + (f" in {run.deployed.engine}" if run.deployed else "")
        for run in runs
    ]


def _metrics(comparison: Comparison, console: Console) -> None:
    runs, task = comparison.runs, comparison.task
    rows: list[list[object]] = [
        ["precision", *[run.words for run in runs]],
        ["key", *[precision_text(short_key(run.precision)) for run in runs]],
        *_accuracy_rows(runs),
        *_agreement_rows(runs),
        *_head_rows(runs),
        *_image_set_rows(runs, task),
    ]
    title = "metrics in percent, differences from the first run"
    if comparison.intervals_by:
        title += f"; 95 % intervals from {comparison.intervals_by}; noise: the interval contains zero"
    print_table(console, ["", *_names(comparison)], rows, title, fold=range(1, 1 + len(runs)))


def _accuracy_rows(runs: Sequence[ComparedRun]) -> Iterator[list[object]]:
    for name in names_of("accuracy"):
        if measure(name).compared and any(run.metrics.get(name, -1) >= 0 for run in runs):
            yield [name, *[_metric(run, name, position > 0) for position, run in enumerate(runs)]]


def _agreement_rows(runs: Sequence[ComparedRun]) -> Iterator[list[object]]:
    """Yield a row for each measure of agreement that one of the runs has; the baseline's cell is empty."""
    others = runs[1:]
    for name in names_of("agreement"):
        values = [None if run.agreement is None else run.agreement.values.get(name.removeprefix(AGREEMENT)) for run in others]
        if any(value is not None for value in values):
            cells = [_of_itself(run, name, value) for run, value in zip(others, values, strict=True)]
            yield [name.replace("_", " "), "", *cells]


def _head_rows(runs: Sequence[ComparedRun]) -> Iterator[list[object]]:
    """Yield rows of the noise at the heads, and of how far another engine's heads are from mpnet's own."""
    heads = [None if run.agreement is None else run.agreement.head_sqnr_db for run in runs[1:]]
    if any(heads):
        texts = [", ".join("exact" if v is None else f"{v:.1f}" for v in values) if values else "-" for values in heads]
        yield ["head SQNR (dB)", "", *texts]
    errors = [None if run.deployed is None else run.deployed.values.get("head_error") for run in runs]
    if any(error is not None for error in errors):
        yield ["head error to mpnet's own", *["" if error is None else f"{error:.1e}" for error in errors]]


def _image_set_rows(runs: Sequence[ComparedRun], task: Task) -> Iterator[list[object]]:
    """Yield rows of configurations of a sweep: on the images that selected them, and on those that were held out."""
    for section, words in (("selection", "on the images that chose"), ("held_out", "on held-out images")):
        for name in (task.quality, task.agreement):
            values = [(getattr(run, section) or {}).get(name) for run in runs]
            if any(value is not None for value in values):
                cells = [_value_and_difference(value, values[0]) for value in values]
                yield [f"{name.replace('_', ' ')} {words}", *cells]


def _metric(run: ComparedRun, name: str, compared: bool) -> Text:
    value = run.metrics.get(name, -1)
    if value < 0:
        return Text("-")
    text = Text(f"{value:.2f}")
    difference, interval = run.differences.get(name), run.intervals.get(name)
    if not compared or difference is None:
        return text
    if difference == 0 and (interval is None or interval.low == interval.high == 0):
        text.append(" the same", style="dim")
        return text
    text.append(f" {number_text(difference, 2, True)}")
    if interval is None:
        return text
    bounds = f" [{number_text(interval.low, 2, True)},{number_text(interval.high, 2, True)}]"
    if interval.within_noise:
        text.append(bounds + " noise", style="dim")
    else:
        text.append(bounds, style="red" if difference < 0 else "green")
        text.append(" lower" if difference < 0 else " higher", style="red" if difference < 0 else "green")
    return text


def _of_itself(run: ComparedRun, name: str, value: float | None) -> Text:
    """Return a value that the baseline has by definition: no difference and no verdict, an interval of the value."""
    text, interval, baseline_value = Text(number_text(value)), run.intervals.get(name), measure(name).itself
    if interval is not None and baseline_value is not None:
        text.append(
            f" [{number_text(baseline_value + interval.low)},{number_text(baseline_value + interval.high)}]", style="dim"
        )
    return text


def _value_and_difference(value: float | None, baseline: float | None) -> str:
    if value is None or baseline is None or value is baseline:
        return number_text(value)
    return f"{number_text(value)} {number_text(value - baseline, 2, True)}"


def _costs(comparison: Comparison, console: Console) -> None:
    runs = comparison.runs
    rows: list[list[object]] = []
    for name in names_of("cost", "count"):
        values = [float(run.cost.get(name, float("nan"))) for run in runs]
        if any(value == value for value in values):
            show = bytes_text if measure(name).unit == "B" else count_text
            rows.append([name.replace("_", " "), *_shares(values, [show(v) for v in values])])
    times = [float("nan") if run.latency is None else float(run.latency.median_ms) for run in runs]
    if any(time == time for time in times):
        texts = [short_latency(run.latency) if run.latency else "-" for run in runs]
        # Bars and shares of what cannot be believed would be believed.
        comparable = not any(doubt_of(run.latency) for run in runs)
        nothing = [float("nan")] * len(runs)
        rows.append(["latency", *_shares(times if comparable else nothing, texts)])
    machines = sorted({f"{run.latency.isa}, {run.latency.threads} threads" for run in runs if run.latency})
    title = "cost" + (f" (latency: {'; '.join(machines)})" if machines else "")
    columns = [""]
    for position, name in enumerate(_names(comparison)):
        columns += [name, *([""] if position else [])]
    if len(runs) == 2:  # more leave no room
        columns.append("")
    print_table(console, columns, rows, title)


def _shares(values: list[float], texts: list[str]) -> list[object]:
    """Return the cells of a row: each value and its share of the first one; of two runs a bar of the second's share."""
    baseline, cells = values[0], list[object]()
    for position, (text, value) in enumerate(zip(texts, values, strict=True)):
        has_share = baseline > 0 and value == value
        cells += [text, *([f"{value / baseline:.0%}" if has_share else ""] if position else [])]
        if len(values) == 2 and position:
            cells.append(Share(value / baseline) if has_share else "")
    return cells


def _layers(comparison: Comparison, console: Console) -> None:
    layers = comparison.layers
    differing = [layer for layer in layers if layer.differs]
    if not differing:
        console.print("all layers have the same precision in all runs\n")
        return
    total = sum(layer.macs for layer in layers) or 1
    cells = [[layer.index, layer.name or layer.type, f"{layer.macs / total:.1%}", *layer.precisions] for layer in differing]
    print_table(
        console,
        ["layer", "name", "MACs", *_names(comparison)],
        cells,
        f"precision: {len(differing)} of {len(layers)} layers differ",
        left=(1,),
    )


def _classes(comparison: Comparison, console: Console, unicode: bool) -> None:
    present, quality = [row for row in comparison.per_class if row.truths > 0], comparison.task.quality
    few = few_classes_text([(row.name, row.truths) for row in present if is_few(row.truths)], comparison.task.thing)
    rows = [row for row in present if not is_few(row.truths)]
    if not rows:
        console.print(f"{few}\n" if few else "", end="")
        return

    def weight(row: ClassComparison) -> float:
        return float(max(map(abs, row.differences)))

    top = max(map(weight, rows))
    real = (
        [
            sum(interval is not None and not interval.within_noise for interval in column)
            for column in zip(*(row.intervals for row in rows), strict=True)
        ]
        if rows[0].intervals
        else []
    )
    cells = []
    for row in sorted(rows, key=lambda row: -weight(row)):
        cell: list[object] = [row.name, row.truths, f"{row.values[0]:.2f}"]
        for number, (value, difference) in enumerate(zip(row.values[1:], row.differences[1:], strict=True)):
            interval = row.intervals[number] if row.intervals else None
            noise = "" if interval is None else " noise" if interval.within_noise else " real "
            change = f"{number_text(difference, 2, True):>7}{noise}"
            cell.append(f"{value:6.2f} {change} {signed_bar(difference, top, 5, unicode)}")
        cells.append(cell)
    title = f"{measure(quality).label} per class, largest differences first"
    if any(real):
        by_chance = max(1, round(len(rows) * 0.05))
        title += f"; beyond noise: {', '.join(map(str, real))} of {len(rows)} (by chance alone about {by_chance})"
    elif real:
        title += "; none beyond noise"
    names = _names(comparison)
    print_table(console, ["class", "truths", *names], cells, title, (0, *range(3, len(names) + 2)), CLASSES_SHOWN, fold=(0,))
    if few:
        console.print(f"{few}\n")


def _changes(run: ComparedRun, console: Console, is_one_of_several: bool, task: Task) -> None:
    changes = [change.as_json() for change in run.changes]
    counts = {kind: sum(change["kind"] == kind for change in changes) for kind in KINDS}
    name = f" by {clean(run.name)} {run.id[:8]}" if is_one_of_several else ""
    words = words_of(task)
    moved_text = f" {counts['moved']} moved (IoU below 0.5)," if counts["moved"] else ""
    title = f"{counts['lost']} {task.thing}s lost,{moved_text} {counts['gained']} gained{name} ({words.matched})"
    if run.verdict:
        title += f"; {run.verdict}"
    if not changes:
        console.print(f"{title}\n")
        return
    rows = [
        [change["kind"], *(_cell_text(change[key]) for key in words.change.values()), change.get("file", "")]
        for change in changes
    ]
    columns = ["", *words.change, "file" if any(row[-1] for row in rows) else ""]
    text_columns = [column for column, key in enumerate(words.change.values(), 1) if isinstance(changes[0][key], str)]
    print_table(console, columns, rows, title, left=(0, *text_columns, len(columns) - 1), limit=CHANGES_SHOWN)


def _cell_text(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
