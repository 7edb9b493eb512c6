"""Tables and bars for the terminal: compact, plain when piped, without colour where NO_COLOR asks for it."""

from __future__ import annotations

import math
import sys
from typing import IO, Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpnet.spec.precision import BY_CODE

EIGHTHS = " ▏▎▍▌▋▊▉█"

STYLES = {"fp32": "blue", "fp16": "yellow", "int8": "green", "good": "green", "bad": "red", "noise": "dim", "none": ""}


def utf8(stream: IO[str] | None = None) -> bool:
    """Whether block characters can be written to `stream` (standard output)."""
    encoding = getattr(stream if stream is not None else sys.stdout, "encoding", None) or "ascii"
    try:
        (EIGHTHS + "│±−").encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def bar(value: float, largest: float, width: int = 12, unicode: bool = True) -> str:
    """A horizontal bar of value / largest x width characters, in eighths of a character.

    Not finite or not positive: the empty bar. More than `largest`: a full one. Without `unicode`: '#'.
    """
    if not (math.isfinite(value) and math.isfinite(largest)) or value <= 0 or largest <= 0:
        return ""
    share = min(value / largest, 1.0)
    if not unicode:
        return "#" * max(1, round(share * width))
    return blocks(max(1, round(share * width * 8)))


def blocks(eighths: int) -> str:
    """So many eighths of characters."""
    full, rest = divmod(eighths, 8)
    return "█" * full + (EIGHTHS[rest] if rest else "")


def signed_bar(value: float, largest: float, width: int = 6, unicode: bool = True) -> str:
    """A bar that grows left (negative) or right (positive) of a middle line; 2 x width + 1 characters.

    What would be less than half a character long is not drawn.
    """
    middle, mark = ("│", "█") if unicode else ("|", "#")
    share = min(abs(value) / largest, 1.0) if math.isfinite(value) and largest > 0 else 0.0
    size = round(share * width)
    if value < 0:
        return " " * (width - size) + mark * size + middle + " " * width
    return " " * width + middle + mark * size + " " * (width - size)


def clean(text: object) -> str:
    """`text` on one line without control characters: names from files must not move the cursor."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def number_text(value: float | None, digits: int = 2, signed: bool = False) -> str:
    """A fixed number of decimals; `-` for None and NaN, a true minus sign is left to the page."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return text.replace("-", "", 1) if float(text) == 0 and text.startswith("-") else text


def precision_text(key: str) -> Text:
    """A precision string with one colour per precision (colour only repeats what the letter says)."""
    text = Text()
    for code in clean(key):
        row = BY_CODE.get(code)
        text.append(code, style=STYLES.get(row.base, "") if row else "")
    return text


def print_table(
    target: Console, columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "",
    left: Sequence[int] = (0,), limit: int | None = None,
) -> None:
    """Print a compact table under its title; columns whose index is in `left` align left, others right.

    Cells are cleaned of control characters; a rich Text keeps its style. With `limit`, later rows are counted
    in one last line instead of shown.
    """
    # Title and last line are printed apart: inside a table they would be wrapped to its width.
    if title:
        target.print(Text(clean(title), style="bold"), soft_wrap=True)
    out = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for position, name in enumerate(columns):
        out.add_column(clean(name), justify="left" if position in left else "right", no_wrap=position not in left,
                       overflow="fold")
    all_rows = list(rows)
    for row in all_rows if limit is None else all_rows[:limit]:
        out.add_row(*[cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row])
    target.print(out)
    if limit is not None and len(all_rows) > limit:
        target.print(f"and {len(all_rows) - limit} more")
    target.print()
