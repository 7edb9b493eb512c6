"""Bars, tables and numbers for the terminal."""

from __future__ import annotations

import pytest

from mpnet.cli.output import console
from mpnet.messages import bytes_text
from mpnet.report import terminal


@pytest.mark.parametrize(("value", "expected"), [
    (0.0, ""), (1.0, "████"), (0.5, "██"), (0.3125, "█▎"), (0.001, "▏"), (7.0, "████"), (float("nan"), ""), (-1.0, ""),
])
def test_bar(value: float, expected: str) -> None:
    assert terminal.bar(value, 1.0, 4) == expected


def test_bar_without_unicode() -> None:
    assert terminal.bar(0.5, 1.0, 4, unicode=False) == "##"


def test_signed_bars_have_one_length() -> None:
    assert {len(terminal.signed_bar(v, 2.0, 5)) for v in (-2.0, -0.1, 0.0, 0.7, 2.0)} == {11}


def test_control_characters_are_shown_not_sent() -> None:
    assert terminal.clean("a\x1b[31mb\nc") == "a\\x1b[31mb\\nc"


@pytest.mark.parametrize(("value", "expected"), [
    (948, "948 B"), (3_450_000, "3.45 MB"), (1_024, "1.02 kB"), (999_499, "999 kB"), (999_700, "1 MB"), (float("nan"), "-"),
])
def test_bytes(value: float, expected: str) -> None:
    assert bytes_text(value) == expected


@pytest.mark.parametrize(("value", "expected"), [
    (0.004, "+0.00"), (-0.004, "0.00"), (-1.234, "-1.23"), (None, "-"), (float("inf"), "inf"),
])
def test_signed_numbers(value: float | None, expected: str) -> None:
    assert terminal.number_text(value, 2, signed=True) == expected


def test_a_pipe_gets_plain_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    wide = "x" * 150
    terminal.print_table(console(), ["name", "value"], [[wide, "\x1b[31mred"]], title="t")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert wide in shown


def test_a_limited_table_counts_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_table(console(), ["n"], [[i] for i in range(9)], limit=4)
    assert "and 5 more" in capsys.readouterr().out
