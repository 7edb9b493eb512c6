# SPDX-License-Identifier: MIT
"""Bars, tables and numbers for the terminal."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from mpnet.cli.output import console
from mpnet.messages import bytes_text, number_text, percent_text, separating_digits
from mpnet.report.text import terminal
from mpnet.report.text.front import value_text


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, ""), (1.0, "████"), (0.5, "██"), (0.3125, "█▎"), (0.001, "▏"), (7.0, "████"), (float("nan"), ""), (-1.0, "")],
)
def test_bar(value: float, expected: str) -> None:
    assert terminal.bar(value, 1.0, 4) == expected


def test_bar_without_unicode() -> None:
    assert terminal.bar(0.5, 1.0, 4, unicode=False) == "##"


def test_signed_bars_have_one_length() -> None:
    assert {len(terminal.signed_bar(v, 2.0, 5)) for v in (-2.0, -0.1, 0.0, 0.7, 2.0)} == {11}


def test_control_characters_are_shown_not_sent() -> None:
    assert terminal.clean("a\x1b[31mb\nc") == "a\\x1b[31mb\\nc"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(948, "948 B"), (3_450_000, "3.45 MB"), (1_024, "1.02 kB"), (999_499, "999 kB"), (999_700, "1 MB"), (float("nan"), "-")],
)
def test_bytes(value: float, expected: str) -> None:
    assert bytes_text(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0.004, "+0.00"), (-0.004, "0.00"), (-1.234, "-1.23"), (None, "-"), (float("inf"), "inf")]
)
def test_signed_numbers(value: float | None, expected: str) -> None:
    assert number_text(value, 2, signed=True) == expected


def test_no_number_is_a_negative_zero() -> None:
    assert [percent_text(value, 0) for value in (-0.4, -0.0, -0.6, None)] == ["0 %", "0 %", "-1 %", "-"]


@pytest.mark.parametrize(
    ("values", "digits"), [((0.26, 0.23), 2), ((0.26, 0.2499), 4), ((0.2503, 0.2463), 3), ((0.25, 0.25), 2), ((0.24999999,), 6)]
)
def test_numbers_stay_on_their_side_of_a_threshold(values: tuple[float, ...], digits: int) -> None:
    assert separating_digits(values, 0.25) == digits


def test_a_pipe_gets_plain_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    wide = "y" * 150
    terminal.print_table(console(), ["name", "value"], [[wide, "\x1b[31mred"]], title="t")
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "".join(text.split()).count("y") == 150
    assert max(map(len, text.splitlines())) <= terminal.WIDEST


def test_a_limited_table_counts_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_table(console(), ["n"], [[i] for i in range(9)], limit=4)
    assert "and 5 more" in capsys.readouterr().out


def _wide(columns: int) -> Console:
    return Console(file=io.StringIO(), width=columns, force_terminal=True, color_system=None, legacy_windows=False)


@pytest.mark.parametrize("columns", [60, 80, 100, 300])
def test_a_table_is_never_wider_than_the_terminal_or_a_hundred_columns(columns: int) -> None:
    target = _wide(columns)
    rows = [[f"layer-{n}", *[f"{n}.{position:02d} value" for position in range(20)], terminal.Share(n / 9)] for n in range(10)]
    terminal.print_table(target, ["name", *[f"column {n}" for n in range(20)], ""], rows)
    lines = target.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(cell_len, lines)) <= min(columns, 100)
    text = "\n".join(lines)
    for row in rows:
        assert all(str(cell) in text for cell in row[:-1])
    # Each part repeats what its rows are about.
    assert text.count("layer-3") == sum("layer-0" in line for line in lines) > 1


def test_bars_fill_the_room_that_is_left() -> None:
    rows = [["a", 1, terminal.Share(1.0)], ["b", 2, terminal.Share(0.5)]]
    for columns, longest in ((40, 24), (20, 20 - 1 - 5 - 2 * terminal.GAP), (11, 0)):
        target = _wide(columns)
        terminal.print_table(target, ["", "count", "share"], rows)
        lines = target.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert max(line.count("#") for line in lines) == longest
        assert max(map(cell_len, lines)) <= columns


def test_optional_columns_go_before_a_table_is_cut() -> None:
    target = _wide(24)
    row = ["n" * 8, "1" * 8, "2" * 8, "3" * 8]
    terminal.print_table(target, ["name", "first", "second", "third"], [row], optional=(2, 1, 3))
    text = target.file.getvalue()  # type: ignore[attr-defined]
    assert "2" * 8 in text
    assert "3" not in text
    assert "1" not in text


def test_words_are_folded_before_a_table_is_cut() -> None:
    target = _wide(32)
    rows = [["qqqqqqqqqqqqq", "12.34", "safe, balanced, smallest", terminal.Share(1.0)]]
    terminal.print_table(target, ["precision", "AP", "", "share"], rows, left=(0, 2))
    lines = target.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert sum("precision" in line for line in lines) == 1
    assert "balanced," in " ".join(lines)
    assert max(map(cell_len, lines)) <= 32


def test_only_the_last_part_of_a_table_has_bars() -> None:
    target = _wide(40)
    terminal.print_table(target, ["", *["column"] * 4, ""], [["a", *["1" * 12] * 4, terminal.Share(1.0)]])
    pieces = target.file.getvalue().split("column")  # type: ignore[attr-defined]
    assert "#" not in "".join(pieces[:-1])
    assert "#" in pieces[-1]


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [(-1.0, "AP", "-"), (50.0, "AP", "50.00"), (None, "AP", ""), (2_000_000.0, "weight_bytes", "2 MB")],
)
def test_what_could_not_be_measured_is_no_number(value: float | None, name: str, text: str) -> None:
    assert value_text(value, name) == text
