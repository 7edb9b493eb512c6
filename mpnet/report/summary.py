"""Three sentences that say what a report means: what was measured, what the choice costs, what it brings."""

from __future__ import annotations

import math

from mpnet.evaluation.compare import Interval
from mpnet.messages import bytes_text, count_text
from mpnet.report.model import ReportData
from mpnet.report.terminal import number_text
from mpnet.spec.measures import HELD_OUT, measure


def verdict(interval: Interval, unit: str = "") -> str:
    """A difference in words: within noise, a loss, or a gain, with its interval."""
    said = f"{number_text(interval.difference, 2, True)}{unit}, 95 % interval " \
           f"{number_text(interval.low, 2, True)} to {number_text(interval.high, 2, True)}"
    if interval.noise:
        return f"within noise ({said})"
    return f"a real {'loss' if interval.difference < 0 else 'gain'} ({said})"


def amount(name: str, value: float) -> str:
    """A value with its unit, for people."""
    row = measure(name)
    if not math.isfinite(value):
        return "not measured"
    if row.unit == "B":
        return bytes_text(value)
    if row.whole and not row.unit:
        return count_text(value)
    return f"{number_text(value, row.digits)}{' ' + row.unit if row.unit and row.unit != '%' else ''}"


def sentences(data: ReportData) -> tuple[str, ...]:
    """The summary: at most three sentences, built only from what was measured."""
    return tuple(s for s in (_measured(data), _accuracy(data), _cost(data)) if s)


def _measured(data: ReportData) -> str:
    table = data.configurations
    images = data.protocol.get("images")
    on = f" on {images} pictures" if images else ""
    done, total = data.status.done, data.status.total
    if data.status.state != "finished":
        of = f" of {total:,}" if total else ""
        word = "is still running" if data.status.state == "running" else "was interrupted"
        return f"This sweep {word}: {done:,}{of} configurations are measured{on}, and the front below may still move."
    if len(table) + table.dropped == 1:
        return f"One configuration was measured{on}."
    front = int(table.front.sum())
    if front and data.kind == "sweep":
        objective, cost = measure(table.objective).label, measure(table.cost).label
        return (f"{done:,} configurations were measured{on}; {front} of them are on the front: "
                f"no other one beats them in both {objective} and {cost}.")
    return f"{len(table):,} configurations were compared{on}."


def _accuracy(data: ReportData) -> str:
    table, chosen, baseline = data.configurations, data.configurations.chosen, data.configurations.baseline
    if chosen is None:
        return ""
    task, (quality, second) = data.task, data.task.per_class
    label, value = measure(quality).label, number_text(table.value(chosen, quality), 2)
    if baseline is None or baseline == chosen:
        return f"It reaches {label} {value} and {measure(second).label} {number_text(table.value(chosen, second), 2)}."
    text = f"The chosen configuration reaches {label} {value} against {number_text(table.value(baseline, quality), 2)}"
    interval = data.intervals.get(chosen, {}).get(quality)
    if interval is not None:
        text += f": the difference is {verdict(interval)}"
    agreement = table.value(chosen, task.agreement)
    if math.isfinite(agreement):
        text += f", and it agrees with the baseline{task.agrees.format(agreement)}"
    held = table.value(chosen, HELD_OUT + quality) - table.value(baseline, HELD_OUT + quality)
    if math.isfinite(held):
        chose = table.value(chosen, quality) - table.value(baseline, quality)
        text += f" ({chose:+.2f} {label} on the pictures that chose it, {held:+.2f} on the held-out ones)"
    elif data.kind == "sweep" and not data.held_out:
        text += "; no pictures were held out, so the best of many is partly luck"
    return text + "."


def _cost(data: ReportData) -> str:
    table, chosen, baseline = data.configurations, data.configurations.chosen, data.configurations.baseline
    if chosen is None:
        return ""
    parts = []
    for name, words in (("weight_bytes", "weights take {}"), ("bit_operations", "{} bit operations per picture"),
                        ("latency_ms", "one picture takes {}")):
        value, before = table.value(chosen, name), table.value(baseline, name)
        if not math.isfinite(value):
            continue
        text = words.format(amount(name, value))
        if baseline != chosen and math.isfinite(before) and before > 0:
            text += f" ({value / before:.0%} of the baseline's {amount(name, before)})"
        parts.append(text)
    return f"Its {parts[0]}; {', '.join(parts[1:])}." if len(parts) > 1 and parts[0].startswith("weights") else (
        f"Cost: {', '.join(parts)}." if parts else "")
