# SPDX-License-Identifier: MIT
"""Figures as SVG for page and papers: small, self-contained, with no program but this one needed to write them."""

from __future__ import annotations

import math
from typing import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from mpnet.model.precision import BY_CODE
from mpnet.report.colours import COLOURS
from mpnet.report.data.figure import Figure, Series
from mpnet.report.data.words import clean

PRINT: dict[str, str] = {
    "text": "#17202c",
    "line": "#d5dae1",
    "muted": "#9aa6b5",
    "accent": "#1d5fc4",
    "baseline": "#3c4655",
    "chosen": "#c2185b",
    **{name: colour.on_white.mark for name, colour in COLOURS.items()},
    **{f"{name}-light": colour.on_white.light for name, colour in COLOURS.items()},
}
"""Colours on white paper; the page passes its own, which follow light and dark."""
PAGE: dict[str, str] = {role: f"var(--{role})" for role in PRINT}
LETTER = 6.2
"""Pixels that a letter takes on average, at 11 pixels."""
MARK = 5.5
"""Radius of what has a name, in pixels."""
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""
FONT = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"


class Canvas:
    """A plotting frame that collects SVG elements. Coordinates in pixels, y downwards."""

    def __init__(self, width: int, height: int, palette: Mapping[str, str], margins: tuple[int, int, int, int]) -> None:
        self.width, self.height, self.palette = width, height, palette
        self.left, self.top = margins[0], margins[1]
        self.right, self.bottom = width - margins[2], height - margins[3]
        self.parts: list[str] = []

    def colour(self, role: str) -> str:
        """Return the colour of a role, such as `accent`."""
        return self.palette.get(role, self.palette["accent"])

    def rect(self, x: float, y: float, width: float, height: float, role: str, words: str = "", key: str | None = None) -> None:
        """Draw a rectangle.

        words: shown where a pointer rests. key: of the configuration that a page selects on a click.
        """
        tail = f"><title>{escape(clean(words))}</title></rect>" if words else "/>"
        fill = 'fill="transparent" pointer-events="all"' if role == "" else f'fill="{self.colour(role)}"'
        data_key = "" if key is None else f" data-key={quoteattr(clean(key))}"
        self.parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{max(height, 0):.2f}" {fill}{data_key}{tail}'
        )

    def segment(self, x0: float, y0: float, x1: float, y1: float, role: str, width: float = 1.0, dash: str = "") -> None:
        """Draw a straight line."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<path d="M{x0:.2f} {y0:.2f}L{x1:.2f} {y1:.2f}" stroke="{self.colour(role)}" '
            f'stroke-width="{width}" fill="none"{dashed}/>'
        )

    def path(self, points: Sequence[tuple[float, float]], role: str) -> None:
        """Draw lines from point to point."""
        if points:
            line = "L".join(f"{x:.2f} {y:.2f}" for x, y in points)
            self.parts.append(f'<path d="M{line}" stroke="{self.colour(role)}" stroke-width="1.4" fill="none"/>')

    def dot(self, x: float, y: float, radius: float, role: str, opacity: float = 1.0) -> None:
        """Draw a filled circle."""
        self.parts.append(
            f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius}" fill="{self.colour(role)}" fill-opacity="{opacity}"/>'
        )

    def text(self, x: float, y: float, words: str, anchor: str = "middle", size: int = 11, turn: int = 0) -> None:
        """Write a text. turn: by how many degrees, clockwise."""
        turned = f' transform="rotate({turn} {x:.2f} {y:.2f})"' if turn else ""
        self.parts.append(
            f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}" font-size="{size}"{turned} '
            f'fill="{self.colour("text")}">{escape(clean(words))}</text>'
        )

    def document(self, title: str) -> str:
        """Return all that was drawn as an SVG document."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" font-family="{FONT}">'
            f"<title>{escape(clean(title))}</title>{''.join(self.parts)}</svg>\n"
        )


def draw(
    figure: Figure, width: int = 640, height: int | None = None, palette: Mapping[str, str] = PRINT, has_title: bool = True
) -> str:
    """Return `figure` as an SVG document of at least width x height pixels: more where it has many layers or rows.

    has_title: whether its title stands above it.
    """
    if figure.kind == "histogram":
        return histogram(figure, width, height or 400, palette)
    names = figure.categories or _names(figure)
    bottom = 46 if figure.kind == "xy" else 24 + 5 * min(max(map(len, names), default=0), 16)
    left = 64 if figure.kind != "heat" else 14 + round(LETTER * max(map(len, figure.rows), default=0))
    slots = len(figure.categories) * 18 if figure.kind == "heat" else len(names) * len(figure.series) * 8
    width = max(width, left + 14 + slots)
    legend, lines = _legend_places(figure, width - left)
    top = (20 if has_title else 4) + 16 * lines + (0 if has_title else 6)
    if figure.kind == "heat":
        height = top + bottom + 19 * len(figure.cells)
    canvas = Canvas(width, height or 400, palette, (left, top, 14, bottom))
    if has_title:
        canvas.text(canvas.left, 14, figure.title, "start", 13)
    for x, line, series in legend:
        y = (21 if has_title else 3) + 16 * line
        canvas.rect(x + left, y, 9, 9, series.colour)
        canvas.text(x + left + 13, y + 8, series.name, "start", 11)
    {"heat": _heat, "xy": _points}.get(figure.kind, _bars)(canvas, figure)
    return canvas.document(figure.title)


def _legend_places(figure: Figure, width: int) -> tuple[list[tuple[float, int, Series]], int]:
    """Return (x, line, series) of each name, and how many lines they take."""
    entries: list[tuple[float, int, Series]] = []
    x, line = 0.0, 0
    for series in figure.series if len(figure.series) > 1 else ():
        if figure.kind == "xy" and len(series.x) == 1:
            continue  # its name stands beside its dot
        entry_width = 26 + LETTER * len(series.name)
        if x and x + entry_width > width:
            x, line = 0.0, line + 1
        entries.append((x, line, series))
        x += entry_width
    return entries, line + bool(entries)


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Return round numbers between low and high, in steps of 1, 2 or 5 times a power of ten."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low] if math.isfinite(low) else []
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return the numbers on a logarithmic axis from 10 ** low to 10 ** high.

    They are 1, 2 and 5 times powers of ten, or the powers alone where these would be many.
    """
    powers = range(math.floor(low), math.ceil(high) + 1)
    numbers = [step * 10.0**power for power in powers for step in (1, 2, 5) if low <= math.log10(step * 10.0**power) <= high]
    return numbers if len(numbers) <= 8 else [10.0**power for power in powers if low <= power <= high]


def tick_text(value: float) -> str:
    """Return a number as an axis shows it: `1.2G`, `350k`, `0.25`."""
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:.6g}"


def _names(figure: Figure) -> list[str]:
    return [str(x) for x in figure.series[0].x] if figure.series and figure.kind == "bars" else []


def _span(values: Sequence[float], share: float = 0.05) -> tuple[float, float]:
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    room = (high - low) * share or abs(high) * share or 1.0
    return low - room, high + room


def _scale(low: float, high: float, start: float, end: float) -> tuple[float, float]:
    factor = (end - start) / (high - low)
    return factor, start - low * factor


def _axis_y(canvas: Canvas, low: float, high: float, label: str) -> tuple[float, float]:
    factor, offset = _scale(low, high, canvas.bottom, canvas.top)
    for value in ticks(low, high):
        y = value * factor + offset
        canvas.segment(canvas.left, y, canvas.right, y, "line")
        canvas.text(canvas.left - 6, y + 4, tick_text(value), "end")
    canvas.text(14, (canvas.top + canvas.bottom) / 2, label, "middle", 12, -90)
    return factor, offset


def _whiskers(canvas: Canvas, series: Series, xs: Sequence[float], factor: float, offset: float, role: str) -> None:
    for x, low, high in zip(xs, series.low or (), series.high or (), strict=False):
        if math.isfinite(low) and math.isfinite(high):
            bottom, top = low * factor + offset, high * factor + offset
            canvas.segment(x, bottom, x, top, role)
            for y in (bottom, top):
                canvas.segment(x - 3, y, x + 3, y, role)


def _points(canvas: Canvas, figure: Figure) -> None:
    transform = math.log10 if figure.log else float
    xs = [transform(x) for s in figure.series for x in s.x]
    ys = [float(y) for s in figure.series for y in (*s.y, *(s.low or ()), *(s.high or ()))]
    low, high = _span(xs)
    fx, ox = _scale(low, high, canvas.left, canvas.right)
    fy, oy = _axis_y(canvas, *_span(ys), figure.y_label)
    for value in (log_ticks if figure.log else ticks)(low, high):
        canvas.text(transform(value) * fx + ox, canvas.bottom + 16, tick_text(value))
    canvas.text((canvas.left + canvas.right) / 2, canvas.height - 8, figure.x_label, size=12)
    named_points: list[tuple[float, float, str]] = []
    for series in figure.series:
        points = [(transform(x) * fx + ox, float(y) * fy + oy) for x, y in zip(series.x, series.y, strict=True)]
        if "line" in series.mode:
            canvas.path(points, series.colour)
        _whiskers(canvas, series, [x for x, _ in points], fy, oy, series.colour)
        if len(points) == 1:
            named_points.append((*points[0], series.name))
        for x, y in points:
            canvas.dot(
                x,
                y,
                MARK if len(points) == 1 else 2 if series.colour == "muted" else 3.2,
                series.colour,
                0.4 if series.colour == "muted" else 1.0,
            )
    for (_, _, name), (x, y, anchor) in zip(named_points, name_places(named_points, canvas), strict=True):
        canvas.text(x, y, name, anchor)


def name_places(marks: Sequence[tuple[float, float, str]], canvas: Canvas) -> list[tuple[float, float, str]]:
    """Return (x, y, anchor) of the name of each mark (x, y, name).

    Names stand aside of their marks, below or above, lines further away where they would cover a mark or another name, or leave
    the frame. `namePlaces` of the page does the same and knows how wide its letters are.
    """
    boxes_taken = [(x - MARK, y - MARK, x + MARK, y + MARK) for x, y, _ in marks]
    name_positions = []
    for x, y, name in marks:
        side_to_middle = -1 if x > (canvas.left + canvas.right) / 2 else 1
        candidates = [
            (x + 9 * side, y + offset, side)
            for line in range(0, canvas.height, 13)
            for side in (side_to_middle, -side_to_middle)
            for offset in (15 + line, -9 - line)
        ]
        boxes = [
            (a - text_width * (side < 0), b - 9, a + text_width * (side > 0), b + 3)
            for a, b, side in candidates
            for text_width in [LETTER * len(name)]
        ]
        best = next(
            (i for i, box in enumerate(boxes) if _is_inside(box, canvas) and not any(_overlap(box, t) for t in boxes_taken)), 0
        )
        boxes_taken.append(boxes[best])
        name_positions.append((*candidates[best][:2], "end" if candidates[best][2] < 0 else "start"))
    return name_positions


def _is_inside(box: Box, canvas: Canvas) -> bool:
    return canvas.left <= box[0] and canvas.top <= box[1] and box[2] <= canvas.right and box[3] <= canvas.bottom


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _bars(canvas: Canvas, figure: Figure) -> None:
    names = _names(figure)
    values = [float(v) for s in figure.series for v in (*s.y, *(s.low or ()), *(s.high or ()))]
    low, high = _span(values)
    low, high = min(low, 0.0) if min(values, default=0) < 0 else 0.0, max(high, 0.0)
    high = high if high > low else low + 1
    factor, floor = _axis_y(canvas, low, high, figure.y_label)
    slot = (canvas.right - canvas.left) / max(len(names), 1)
    width = slot * 0.75 / max(len(figure.series), 1)
    for number, series in enumerate(figure.series):
        middles = [canvas.left + slot * (i + 0.125) + width * (number + 0.5) for i in range(len(names))]
        for name, x, value in zip(names, middles, series.y, strict=True):
            y = float(value) * factor + floor
            if math.isfinite(y):
                words = f"{name}: {float(value):.4g} ({series.name})"
                canvas.rect(x - width / 2, min(y, floor), width, abs(floor - y), series.colour, words)
        _whiskers(canvas, series, middles, factor, floor, "text")
    canvas.segment(canvas.left, floor, canvas.right, floor, "muted")
    _category_names(canvas, names, slot)


def _category_names(canvas: Canvas, names: Sequence[str], slot: float) -> None:
    for number, name in enumerate(names):
        label = name if len(name) <= 16 else name[:15] + "…"
        canvas.text(canvas.left + slot * (number + 0.5) + 4, canvas.bottom + 13, label, "end", 10, -45)


def _heat(canvas: Canvas, figure: Figure) -> None:
    slot = (canvas.right - canvas.left) / max(len(figure.categories), 1)
    row_height = (canvas.bottom - canvas.top) / max(len(figure.cells), 1)
    for row, (key, label) in enumerate(zip(figure.cells, figure.rows, strict=True)):
        y = canvas.top + row_height * row
        for column in range(len(figure.categories)):
            precision = BY_CODE.get(key[column]) if column < len(key) else None
            if precision is not None:
                canvas.rect(canvas.left + slot * column, y, slot - 1, row_height - 1, precision.base)
        canvas.text(canvas.left - 6, y + row_height / 2 + 4, label, "end")
        canvas.rect(0, y, canvas.right, row_height, "", key, key)
    _category_names(canvas, figure.categories, slot)


def histogram(figure: Figure, width: int = 220, height: int = 120, palette: Mapping[str, str] = PRINT) -> str:
    """Draw log-scaled counts as steps, with dashed lines at the clipping range."""
    canvas = Canvas(width, height, palette, (8, 8, 8, 20))
    series = figure.series[0]
    centres = [float(x) for x in series.x]
    step = centres[1] - centres[0] if len(centres) > 1 else 1.0
    bounds = [centres[0] - step / 2, centres[-1] + step / 2, *(x for x, _ in figure.lines)]
    low, high = min(bounds), max(bounds)
    factor, offset = _scale(low, high if high > low else low + 1, canvas.left, canvas.right)
    top = math.log10(1 + max(series.y, default=0)) or 1.0
    for x, count in zip(centres, series.y, strict=True):
        bar_height = math.log10(1 + count) / top * (canvas.bottom - canvas.top)
        canvas.rect(
            (x - step / 2) * factor + offset, canvas.bottom - bar_height, step * factor + 0.2, bar_height, series.colour
        )
    canvas.segment(canvas.left, canvas.bottom, canvas.right, canvas.bottom, "muted")
    for x, _ in figure.lines:
        canvas.segment(x * factor + offset, canvas.top, x * factor + offset, canvas.bottom, "chosen", 1.4, "4 3")
    canvas.text(canvas.left, height - 6, tick_text(round(bounds[0], 4)), "start", 10)
    canvas.text(canvas.right, height - 6, tick_text(round(bounds[1], 4)), "end", 10)
    return canvas.document(figure.title)
