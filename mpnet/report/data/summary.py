# SPDX-License-Identifier: MIT
"""Three sentences that say what a report means: what was measured, what the choice costs, what it brings."""

from __future__ import annotations

import math

from mpnet.config.measures import measure
from mpnet.evaluation.compare import Interval
from mpnet.messages import bytes_text, count_text, counted, number_text
from mpnet.model.plan_words import PlanWords
from mpnet.report.data.report_data import ReportData


def verdict(interval: Interval) -> str:
    """Describe a difference: within noise, a loss, or a gain, with its interval."""
    if not interval.tells:
        return f"{number_text(interval.difference, 2, True)} on these images, too few to say what it is on others"
    numbers = f"{number_text(interval.difference, 2, True)}, 95 % interval {bounds(interval)}"
    return (
        f"within noise ({numbers})" if interval.noise else f"a real {'loss' if interval.difference < 0 else 'gain'} ({numbers})"
    )


def bounds(interval: Interval, start: float | None = None) -> str:
    """Describe an interval.

    start: of a measure that has a best value, that value: the interval is of the measure then, not of a difference.
    """
    if not interval.tells:
        return "unknown, of too few images"
    return " to ".join(number_text(value + (start or 0.0), 2, start is None) for value in (interval.low, interval.high))


def amount(name: str, value: float) -> str:
    """Return a value with its unit, for people."""
    quantity = measure(name)
    if not math.isfinite(value):
        return "not measured"
    if quantity.unit == "B":
        return bytes_text(value)
    if quantity.whole and not quantity.unit:
        return count_text(value)
    return f"{number_text(value, quantity.digits)}{' ' + quantity.unit if quantity.unit and quantity.unit != '%' else ''}"


def in_words(data: ReportData, key: str) -> str:
    """Describe a precision string: `int8, but fp16 in heads`."""
    return PlanWords.of((layer.name, layer.selectors) for layer in data.weighted)(key)


def sentences(data: ReportData) -> tuple[str, ...]:
    """Return the summary: what a sweep recommends, then at most three sentences, built only from what was measured."""
    return tuple(
        s for s in (data.recommendation, _measurement_sentence(data), _accuracy_sentence(data), _cost_sentence(data)) if s
    )


def _measurement_sentence(data: ReportData) -> str:
    table = data.configurations
    images = data.images
    images_clause = f" on {counted(images)}" if images else ""
    finished, total = data.status.finished, data.status.total
    if data.status.state != "finished":
        of_total = f" of {total:,}" if total else ""
        word = "is still running" if data.status.state == "running" else "was interrupted"
        return (
            f"This sweep {word}: {finished:,}{of_total} configurations are measured{images_clause}, and the front below may "
            "still move."
        )
    if len(table) + table.dropped == 1:
        return f"One configuration was measured{images_clause}."
    front = int(table.front.sum())
    if front and data.kind == "sweep":
        objectives = [
            name for name in data.objectives if any(math.isfinite(table.value(row, name)) for row in range(len(table)))
        ]
        names = [measure(name).label for name in objectives or (table.objective, table.cost)]
        if data.held_out:
            images_clause += f", of which {images - data.held_out} chose and {data.held_out} were held out"
        return (
            f"{finished:,} configurations were measured{images_clause}; {front} of them {'is' if front == 1 else 'are'} on the "
            f"front: no other beats them in {', '.join(names[:-1])} and {names[-1]}."
        )
    return f"{len(table):,} configurations were compared{images_clause}."


def _accuracy_sentence(data: ReportData) -> str:
    table, chosen, baseline = data.configurations, data.configurations.chosen, data.configurations.baseline
    if chosen is None:
        return ""
    task = data.task
    quality, second = (data.judged + name for name in task.per_class)
    label, value = measure(task.quality).label, number_text(table.value(chosen, quality), 2)
    images_clause = f"On {data.images_of(quality)} " if data.images else ""
    if baseline is None or baseline == chosen:
        pronoun, second_label = "it" if images_clause else "It", measure(task.per_class[1]).label
        second_value = number_text(table.value(chosen, second), 2)
        return f"{images_clause}{pronoun} reaches {label} {value} and {second_label} {second_value}."
    subject, clauses = f"{images_clause}{'t' if images_clause else 'T'}he {data.shown_as} ", []
    intervals = data.intervals.get(chosen, {})
    if math.isfinite(table.value(chosen, quality)):
        clauses.append(f"reaches {label} {value} against {number_text(table.value(baseline, quality), 2)}")
        if quality in intervals:
            clauses[0] += f": the difference is {verdict(intervals[quality])}"
    name = data.judged + task.agreement
    agreement = table.value(chosen, name)
    if math.isfinite(agreement):
        clauses.append(f"agrees with the baseline{task.agrees.format(agreement)}")
        if name in intervals:
            clauses[-1] += f" (95 % interval {bounds(intervals[name], measure(task.agreement).itself)})"
    if not clauses:
        return ""
    text = subject + ", and it ".join(clauses)
    if data.kind == "sweep" and not data.held_out:
        text += "; no images were held out, so being the best of many is partly luck"
    return text + "."


def _cost_sentence(data: ReportData) -> str:
    table, chosen, baseline = data.configurations, data.configurations.chosen, data.configurations.baseline
    if chosen is None:
        return ""
    clauses = []
    for name, words in (
        ("weight_bytes", "weights take {}"),
        ("bit_operations", "{} bit operations per image"),
        ("latency_ms", f"one image takes {{}} on {data.board}" if data.board else "one image takes {}"),
    ):
        value, baseline_value = table.value(chosen, name), table.value(baseline, name)
        if not math.isfinite(value):
            continue
        text = words.format(amount(name, value))
        if baseline != chosen and math.isfinite(baseline_value) and baseline_value > 0:
            text += f" ({value / baseline_value:.0%} of the baseline's {amount(name, baseline_value)})"
        clauses.append(text)
    return (
        f"Its {clauses[0]}; {', '.join(clauses[1:])}."
        if len(clauses) > 1 and clauses[0].startswith("weights")
        else (f"Cost: {', '.join(clauses)}." if clauses else "")
    )


def untested(data: ReportData) -> list[str]:
    """Return what nobody has tested, a sentence each."""
    lines = ["Images unlike those that were measured: other places, cameras, seasons."]
    if not data.held_out and data.kind == "sweep":
        lines.append("Images that did not choose: none was held out, so that the figures flatter the choice.")
    if data.protocol.get("condition") is None:
        lines.append("Noise, blur, darkness and fog, unless these images have them.")
    if not any(name.startswith("deployed") for name in data.configurations.columns):
        lines.append("Other programs that run the exported file.")
    if not math.isfinite(data.configurations.value(data.configurations.chosen, "latency_ms")):
        lines.append("Time on the board.")
    return lines + [f"{omission.subject}: {omission.reason}." for omission in data.omissions]
