# SPDX-License-Identifier: MIT
"""Tables and bars for the terminal: compact, plain when piped, without colour where NO_COLOR asks for it."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import IO, Iterable, Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpnet.model.precision import BY_CODE
from mpnet.report.colours import COLOURS
from mpnet.report.data.words import clean

WIDEST = 100
"""Columns of the widest table, whatever the terminal has."""
GAP = 2
SHORTEST_BAR, LONGEST_BAR = 6, 24
FOLDED = 24
"""To how many columns words are folded at most."""
EIGHTHS = " ▏▎▍▌▋▊▉█"

STYLES = {
    **{name: colour.terminal for name, colour in COLOURS.items()},
    "good": "green",
    "bad": "red",
    "noise": "dim",
    "none": "",
}


def utf8(stream: IO[str] | None = None) -> bool:
    """Return whether block characters can be written to `stream` (standard output)."""
    encoding = getattr(stream if stream is not None else sys.stdout, "encoding", None) or "ascii"
    try:
        (EIGHTHS + "│±−").encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def bar(value: float, largest: float, width: int = 12, unicode: bool = True) -> str:
    """Return a horizontal bar of value / largest x width characters, in eighths of a character.

    Not finite or not positive: the empty bar. More than `largest`: a full one. Without `unicode`: '#'.
    """
    if not (math.isfinite(value) and math.isfinite(largest)) or value <= 0 or largest <= 0:
        return ""
    share = min(value / largest, 1.0)
    if not unicode:
        return "#" * max(1, round(share * width))
    return blocks(max(1, round(share * width * 8)))


def blocks(eighths: int) -> str:
    """Return so many eighths of characters."""
    full, remainder = divmod(eighths, 8)
    return "█" * full + (EIGHTHS[remainder] if remainder else "")


def signed_bar(value: float, largest: float, width: int = 6, unicode: bool = True) -> str:
    """Return a bar that grows left (negative) or right (positive) of a middle line; 2 x width + 1 characters.

    What would be less than half a character long is not drawn.
    """
    middle, mark = ("│", "█") if unicode else ("|", "#")
    share = min(abs(value) / largest, 1.0) if math.isfinite(value) and largest > 0 else 0.0
    size = round(share * width)
    if value < 0:
        return " " * (width - size) + mark * size + middle + " " * width
    return " " * width + middle + mark * size + " " * (width - size)


def precision_text(key: str) -> Text:
    """Return a precision string with one colour per precision; colour only repeats what the letter says."""
    text = Text()
    for code in clean(key):
        precision = BY_CODE.get(code)
        text.append(code, style=STYLES.get(precision.base, "") if precision else "")
    return text


@dataclass(frozen=True)
class Share:
    """A cell that is a bar, 0 to 1 of whatever room the other columns leave."""

    value: float


def print_table(
    target: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str = "",
    left: Sequence[int] = (0,),
    limit: int | None = None,
    keys: int = 1,
    optional: Sequence[int] = (),
    fold: Sequence[int] | None = None,
) -> None:
    """Print a compact table under its title; columns whose index is in `left` align left, others right.

    No line is wider than the terminal or WIDEST columns: bars take what room is left, long texts of the columns in `fold`
    (None: `left`) are folded, those in `optional` are shown as far as there is room, the first of them first, and what is
    still too wide becomes several tables that repeat the first `keys` columns. Headings break at blanks where their cells
    are narrower.
    Cells are cleaned of control characters; a rich Text keeps its style. With `limit`, later rows are counted
    in one last line instead of shown.
    """
    if title:
        target.print(Text(clean(title), style="bold"))
    all_rows = list(rows)
    shown_rows = all_rows if limit is None else all_rows[:limit]
    table = _Table(columns, shown_rows, left, left if fold is None else fold, utf8(target.file))
    for piece in table.split_to_width(min(target.width, WIDEST), keys, optional):
        target.print(piece)
    if limit is not None and len(all_rows) > limit:
        target.print(f"and {len(all_rows) - limit} more")
    target.print()


class _Table:
    def __init__(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], left: Sequence[int], fold: Sequence[int], unicode: bool
    ) -> None:
        self._left, self._foldable, self._unicode = left, fold, unicode
        self._cells = [[cell if isinstance(cell, (Text, Share)) else Text(clean(cell)) for cell in row] for row in rows]
        self._bars = {column for row in self._cells for column, cell in enumerate(row) if isinstance(cell, Share)}
        self._heads, self._widths = [], []
        for column, name in enumerate(columns):
            inner = max((row[column].cell_len for row in self._cells if isinstance(row[column], Text)), default=0)  # type: ignore[union-attr]
            head = _broken(clean(name), inner)
            self._heads.append(head)
            self._widths.append(max([inner, *map(cell_len, head.split("\n"))]))

    def split_to_width(self, room: int, keys: int, optional: Sequence[int]) -> Iterator[Table]:
        """Yield tables that fit, each with some of the columns."""
        columns = [column for column in range(len(self._heads)) if column not in self._bars and column not in optional]
        for column in optional:
            if self._width_of([*columns, column]) <= room:
                columns = sorted([*columns, column])
        self._fold(columns, room)
        *groups, last_group = self._groups(columns, room, keys)
        for group in groups:
            yield self._build(group, {})
        # A bar stands where it was asked for, if there is room for it.
        spare = room - self._width_of(last_group) - GAP
        bars = {column: min(LONGEST_BAR, spare) for column in self._bars if spare >= SHORTEST_BAR}
        yield self._build(sorted([*last_group, *bars]), bars)

    def _width_of(self, columns: Sequence[int]) -> int:
        return sum(self._widths[column] for column in columns) + GAP * max(0, len(columns) - 1)

    def _fold(self, columns: Sequence[int], room: int) -> None:
        for column in sorted(self._foldable, key=lambda column: -self._widths[column] if column in columns else 0):
            excess = self._width_of(columns) - room
            if column in columns and excess > 0:
                cells = (str(row[column]) for row in self._cells)
                words = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
                min_width = min(
                    self._widths[column], max([min(FOLDED, words), *map(cell_len, self._heads[column].split("\n"))])
                )
                self._widths[column] = max(min_width, self._widths[column] - excess)

    def _groups(self, columns: list[int], room: int, keys: int) -> list[list[int]]:
        key_columns = [column for column in columns if column < keys]
        groups = [list(key_columns)]
        for column in columns[len(key_columns) :]:
            if len(groups[-1]) > len(key_columns) and self._width_of([*groups[-1], column]) > room:
                groups.append(list(key_columns))
            groups[-1].append(column)
        return groups

    def _build(self, columns: Sequence[int], bars: Mapping[int, int]) -> Table:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
        for column in columns:
            table.add_column(
                self._heads[column],
                justify="left" if column in self._left or column in bars else "right",
                width=bars.get(column, self._widths[column]),
                overflow="fold",
            )
        for row in self._cells:
            cells = (row[column] for column in columns)
            table.add_row(
                *[
                    Text(bar(cell.value, 1.0, bars[column], self._unicode)) if isinstance(cell, Share) else cell
                    for column, cell in zip(columns, cells, strict=True)
                ]
            )
        return table


def _broken(heading: str, inner: int) -> str:
    """Return a heading in lines of words, none longer than the column's cells if its words are not."""
    width = max([inner, *map(cell_len, heading.split())])
    lines = [""]
    for word in heading.split():
        if lines[-1] and cell_len(f"{lines[-1]} {word}") > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
