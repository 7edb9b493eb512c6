# SPDX-License-Identifier: MIT
"""Values, places and amounts as people read them: in messages, which are one line whatever a file holds, and in tables."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Iterable, Mapping, Sequence


def shown(value: object) -> str:
    """Show a value in a message: one line, at most 60 characters."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def named(path: Path | str) -> str:
    """Show a path in a message: as it is, or quoted and escaped when it holds line breaks and the like."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def separator_hint(path: Path | str) -> str:
    """Return what to say of a missing file whose path a shell, or Windows, would have read otherwise; '' of any other path."""
    text = str(path)
    if text.startswith("~") or "/~" in text:
        return "; `~` is a shell's word for the home folder, write that out"
    if "$" in text:
        return "; variables are put in by a shell, write out what they stand for"
    if os.sep == "\\" or "\\" not in text:
        return ""
    slashes = text.replace("\\", "/")
    return f"; folders are separated by slashes here: {named(slashes)}"


def nearest(word: str, words: Iterable[str]) -> str:
    """Return what to say of an unknown word: the known one that is spelt almost so, else all that are known."""
    import difflib  # for mistakes only

    known = list(words)
    near = difflib.get_close_matches(word[:80], known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known) or 'none'}"


def a(noun: str) -> str:
    """Return a noun with its article: `an image file`, `an experiment file`."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def one_line(text: str, limit: int = 1_000) -> str:
    """Write a message as one line of bounded length: a file name in it may hold anything, such as line breaks."""
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return line if len(line) <= limit else f"{line[: limit * 2 // 3]} ... {line[-limit // 3 :]}"


_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def visible_text(text: str) -> str:
    """Return a text for pages: its lines stay; what nobody sees, or what turns the letters behind it around, is escaped."""
    return _UNSEEN.sub(lambda match: repr(match[0])[1:-1], text)


MOST_NAMED = 100


def all_at_once(problems: Sequence[str], total: int, what: str) -> str:
    """Write one message for what is wrong with several of `total`: all of them, as long as anybody would read on."""
    if len(problems) == 1:
        return problems[0]
    more = f"; and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
    return f"{len(problems)} of {total} {what} cannot be used: {'; '.join(problems[:MOST_NAMED])}{more}"


def few(names: Sequence[str], most: int = 5) -> str:
    """List the first of some names, and whether there are others."""
    return ", ".join(names[:most]) + (" and others" if len(names) > most else "")


def reason_of(error: Exception) -> str:
    """Return what the system said, without its number and the file's name."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def counted(count: int, noun: str = "image") -> str:
    """Write how many there are: `1 image`, `79 images`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def count_text(count: float, unit: str = "") -> str:
    """Write a large number for people with three digits and a power of 1,000: `1.24 G`, `653 M`; `-` for none."""
    if not math.isfinite(count):
        return "-"
    for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "k")):
        # From 999.5 on three digits are the next power's.
        if abs(count) >= 999.5 * 1000 ** (power - 1):
            return f"{count / 1000**power:.3g} {letter}{unit}"
    return f"{count:.0f}" + (f" {unit}" if unit else "")


def whole_text(count: int) -> str:
    """Write a whole number for people: `8,192`, and from 10^12 on `1.2e+40`."""
    if count < 10**12:
        return f"{count:,}"
    power = math.floor(math.log10(count))
    return f"{10 ** (math.log10(count) - power):.1f}e+{power}"


def bytes_text(size: float) -> str:
    """Write bytes for people: `948 B`, `3.45 MB` (powers of 1,000)."""
    return count_text(size, "B")


def cell_text(text: str) -> str:
    """Write a text as a cell of CSV: one that a spreadsheet would take for a formula begins with an apostrophe."""
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def plot_text(text: str) -> str:
    """Write a text for matplotlib, to which dollars are mathematics."""
    return text.replace("$", r"\$")


def limits_text(limits: Mapping[str, float]) -> str:
    """Write a sweep's limits by key: `ap_drop 3, weight_bytes 2,000,000`."""
    return ", ".join(f"{key} {limit:{',.0f' if float(limit).is_integer() else ',g'}}" for key, limit in limits.items())


def number_text(value: float | None, digits: int = 2, signed: bool = False) -> str:
    """Write a number with fixed decimals, never as a negative zero; `-` for None and NaN."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return text.replace("-", "", 1) if float(text) == 0 and text.startswith("-") else text


def percent_text(percent: float | None, digits: int = 1, signed: bool = False) -> str:
    """Write a number of percent, such as `93.6 %`; `-` for None and NaN."""
    text = number_text(percent, digits, signed)
    return text if text == "-" else f"{text} %"


def separating_digits(values: Iterable[float], threshold: float, least: int = 2, most: int = 6) -> int:
    """Return how many decimals to write values with, so that each stays on its side of a threshold when it is rounded."""
    numbers = [float(value) for value in values]
    for digits in range(least, most):
        if all((round(value, digits) >= threshold) == (value >= threshold) for value in numbers):
            return digits
    return most
