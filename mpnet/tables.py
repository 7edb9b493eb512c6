# SPDX-License-Identifier: MIT
"""Columns of figures as notebooks show them, as pandas takes them and as matplotlib draws them."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from mpnet.messages import count_text, number_text, plot_text, visible_text
from mpnet.packages import require, requirements

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas

ROWS_SHOWN = 200
"""Most rows that a notebook shows; `to_pandas` has all."""


@dataclass(frozen=True)
class Chart:
    """The chart that `Table.plot` draws of a table; each field is the name of a column.

    Without `cost`: one bar a row, as long as `value`, named by `label`; with it: points of `value` over `cost`, of which
    those with a `label` are named. low, high: ends of the interval of `value`.
    """

    value: str
    label: str
    cost: str = ""
    low: str = ""
    high: str = ""


class Tabular:
    """An object that notebooks show as a table: everything comes from `table`."""

    @property
    def table(self) -> Table:
        """Return the figures as columns."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """Return the figures, one row each. Raises: ConfigError where pandas is missing."""
        require("a DataFrame", requirements("pandas"), "table")
        import pandas as pd

        return pd.DataFrame({name: list(values) for name, values in self.table.columns.items()})

    def plot(self, axes: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Draw the figures. axes: of matplotlib; None: new ones. Result: the axes.

        Raises: ConfigError where matplotlib is missing, or for a table that has no chart.
        """
        require("a plot", requirements("matplotlib"), "plot")
        return self.table.drawn(axes)

    def _repr_html_(self) -> str:
        return self.table.html()


@dataclass(frozen=True, eq=False)
class Table(Tabular):
    """Columns of equal length. title: above table and plot. chart: None where there is nothing to draw."""

    columns: Mapping[str, Sequence[Any]]
    title: str = ""
    chart: Chart | None = None

    @property
    def table(self) -> Table:
        """Return the table itself."""
        return self

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def html(self) -> str:
        """Return the table for a notebook, its first ROWS_SHOWN rows."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = list(zip(*self.columns.values(), strict=True))
        body = "".join(f"<tr>{''.join(f'<td>{escape(_cell(value))}</td>' for value in row)}</tr>" for row in rows[:ROWS_SHOWN])
        more = f"<p>and {len(rows) - ROWS_SHOWN} more rows</p>" if len(rows) > ROWS_SHOWN else ""
        title = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        return visible_text(f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}")

    def drawn(self, axes: matplotlib.axes.Axes | None) -> matplotlib.axes.Axes:
        """Draw the chart that `plot` returns, once matplotlib is there."""
        from matplotlib import pyplot

        from mpnet.errors import ConfigError

        chart = self.chart
        if chart is None:
            raise ConfigError(f"{self.title or 'this table'}: has nothing to draw; `to_pandas()` gives its figures")
        if axes is None:
            _, axes = pyplot.subplots(figsize=(7, 4.5 if chart.cost else max(2.5, 0.25 * len(self))), layout="constrained")
        values, labels = self.columns[chart.value], [plot_text(str(label)) for label in self.columns[chart.label]]
        ends = None
        if chart.low:
            ends = [
                [max(0.0, value - low) for value, low in zip(values, self.columns[chart.low], strict=True)],
                [max(0.0, high - value) for value, high in zip(values, self.columns[chart.high], strict=True)],
            ]
        if chart.cost:
            costs = self.columns[chart.cost]
            axes.errorbar(costs, values, yerr=ends, fmt="o-", capsize=3)
            for cost, value, label in zip(costs, values, labels, strict=True):
                if label:
                    axes.annotate(label, (cost, value), textcoords="offset points", xytext=(6, -10))
            axes.set_xlabel(plot_text(chart.cost))
            axes.set_ylabel(plot_text(chart.value))
        else:
            axes.barh(range(len(labels)), values, xerr=ends, capsize=3)
            axes.set_yticks(range(len(labels)), labels)
            axes.invert_yaxis()  # the first row on top, as in the table
            axes.set_xlabel(plot_text(chart.value))
        axes.set_title(plot_text(self.title))
        return axes


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn rows into columns: all names in the order in which they come; None where a row lacks one."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


def layer_table(rows: Sequence[Mapping[str, Any]], title: str, layer_ms: Mapping[int, float] | None = None) -> Table:
    """Return the layers as `engine.cost.layer_costs` has them.

    layer_ms: milliseconds by layer index, where they were measured.
    """
    names = ("index", "name", "type", "precision", "shape", "macs", "parameters", "weight_bytes", "activation_bytes")
    columns = {name: [row.get(name) for row in rows] for name in names}
    if layer_ms:
        columns["ms"] = [layer_ms.get(row["index"], 0.0) for row in rows]
    return Table(columns, title, Chart("ms" if layer_ms else "weight_bytes", "name"))


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return count_text(value) if abs(value) >= 1e5 else f"{value:.4g}" if 0 < abs(value) < 0.01 else number_text(value)
    return str(value)
