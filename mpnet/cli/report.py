# SPDX-License-Identifier: MIT
"""`mpnet report`: one HTML file that explains runs or a sweep."""

from __future__ import annotations

import time
from pathlib import Path

import click

from mpnet.cli.options import OUTPUT_FILE, OUTPUT_FOLDER, PATH, budget_options, budgets_of, declare, unlabelled_option
from mpnet.cli.output import console, note, print_json, progress
from mpnet.errors import ConfigError
from mpnet.evaluation.compare import DRAWS, MAX_DRAWS, MIN_DRAWS
from mpnet.formats.files.atomic import write_text
from mpnet.messages import bytes_text
from mpnet.report.collect.network_page import collect_page
from mpnet.report.collect.report import collect
from mpnet.report.data.summary import sentences
from mpnet.report.export import write_data, write_figures
from mpnet.report.html.page import render
from mpnet.report.statement import write_statement
from mpnet.report.text.network_page import render_markdown
from mpnet.resolve.pick import pick_name
from mpnet.resolve.stored import in_store
from mpnet.sweep.store.latest import is_store, store_at


@declare(
    "mpnet report runs/example/0123456789abcdef -o report.html",
    "mpnet report runs/aix/sweep.sqlite -o report.html --figures figures/ --data data/",
    "mpnet report runs/aix:balanced -o report.html",
    "mpnet report runs/aix/latest.sqlite --live",
    "mpnet report runs/aix --max-loss '1 agreement' --max-bytes 2MB -o report.html",
    "mpnet report runs/aix:recommended --statement -o statement.pdf",
    "mpnet report runs/aix:recommended -o aix.md",
)
@click.argument("sources", nargs=-1, required=True, metavar="STORE_OR_RUN...", type=PATH)
@click.option(
    "-o",
    "--out",
    default="report.html",
    show_default=True,
    type=OUTPUT_FILE,
    help="The page to write; NAME.md: a short one in Markdown, of a finished sweep.",
)
@click.option("--figures", type=OUTPUT_FOLDER, metavar="DIR", help="Write every plot as SVG.")
@click.option(
    "--data", "data_folder", type=OUTPUT_FOLDER, metavar="DIR", help="Write the numbers of every plot as CSV and JSON."
)
@click.option(
    "--draws", default=DRAWS, show_default=True, type=click.IntRange(MIN_DRAWS, MAX_DRAWS), help="Bootstrap draws over images."
)
@click.option(
    "--score",
    type=click.FloatRange(0, 1),
    help="Score threshold at which a detector's errors are counted.  [default: the best F1 of the baseline]",
)
@click.option(
    "--explain",
    "explain_worst",
    type=click.IntRange(0, 10_000),
    default=0,
    show_default=True,
    help="Lost objects whose layers are named, as `mpnet explain` does; takes passes of their images.",
)
@unlabelled_option
@click.option("--no-compute", is_flag=True, help="Show what is stored; run no network for what is not.")
@click.option("--choose", metavar="KEY", help="Precision string of the configuration to show.  [default: the sweep's]")
@budget_options
@click.option(
    "--sweep",
    type=click.IntRange(1),
    metavar="N",
    help="Which of the store's sweeps, as `mpnet sweep --status` numbers them.  [default: the last]",
)
@click.option(
    "--statement",
    "as_statement",
    is_flag=True,
    help="Write one A4 page for whoever signs, as .html or, by chromium, as .pdf, in place of the report.",
)
@click.option("--live", is_flag=True, help="Show a sweep in the browser while it runs, and write the page when it has ended.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Of 127.0.0.1, with --live.")
def command(
    sources: tuple[Path, ...],
    out: Path,
    figures: Path | None,
    data_folder: Path | None,
    draws: int,
    score: float | None,
    explain_worst: int,
    unlabelled: Path | None,
    no_compute: bool,
    choose: str | None,
    max_loss: str | None,
    max_time: str | None,
    max_bytes: str | None,
    sweep: int | None,
    as_statement: bool,
    live: bool,
    port: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write a report of runs (the first is the baseline) or of a sweep, as one HTML file without outside parts.

    STORE:recommended, STORE:KEY and STORE:N/KEY say which configuration the page is about; a folder stands for its latest
    result, or else for its latest sweep. A sweep may still be running or have been interrupted. Errors per layer, intervals and
    images that are not stored are computed when network and data are still there and unchanged; otherwise the page says
    what it lacks. What was computed is kept (`mpnet info` says where), so that the same report again is quick.
    With --live a page on 127.0.0.1, whose address is printed, follows a sweep that other processes or machines compute;
    nobody without the address can read it.
    """
    if len(sources) == 1 and not sources[0].exists() and choose is None and sweep is None:
        path, sweep, choose = in_store(str(sources[0]))
        sources = (path,)
    budgets = budgets_of(max_loss, max_time, max_bytes)
    if budgets:
        path, choose = _pick(sources, sweep, budgets, choose)
        sources = (path,)
    if live:
        _watch(sources, sweep, port)
    if out.suffix.lower() == ".md":
        _write_markdown(sources, out, choose, sweep, draws, quiet, as_json)
        return
    start = time.perf_counter()
    data = collect(
        sources,
        progress=progress(quiet),
        draws=draws,
        compute=not no_compute,
        choose=choose,
        sweep=sweep,
        score=score,
        explain_worst=explain_worst,
        unlabelled=unlabelled,
    )
    if as_statement:
        write_statement(data, out)
    else:
        write_text(out, render(data))
    out_bytes = out.stat().st_size
    written = [out]
    if figures is not None:
        written += write_figures(data, figures)
    if data_folder is not None:
        written += write_data(data, data_folder)
    seconds = time.perf_counter() - start
    if as_json:
        print_json(
            {
                "report": str(out),
                "bytes": out_bytes,
                "seconds": seconds,
                "summary": list(sentences(data)),
                "state": data.status.state,
                "files": [str(path) for path in written],
                "missing": [{"what": omission.subject, "why": omission.reason} for omission in data.omissions],
            }
        )
        return
    shown = console()
    for sentence in sentences(data):
        shown.print(sentence)
    for omission in data.omissions:
        shown.print(f"not shown: {omission.subject}: {omission.reason}")
    shown.print(
        f"{out} ({bytes_text(out_bytes)}, {seconds:.1f} s)"
        + (f" and {len(written) - 1} more files" if len(written) > 1 else "")
    )


def _write_markdown(
    sources: tuple[Path, ...], out: Path, choose: str | None, sweep: int | None, draws: int, quiet: bool, as_json: bool
) -> None:
    """Write the page of one sweep's network. Raises: ConfigError for several sources; as `collect_page`."""
    if len(sources) != 1:
        raise ConfigError(f"{out}: a page in Markdown is of one sweep; name its store, or the folder of its results, alone")
    start = time.perf_counter()
    page = collect_page(sources[0], progress=progress(quiet), choose=choose, sweep=sweep, draws=draws)
    write_text(out, render_markdown(page))
    out_bytes, seconds = out.stat().st_size, time.perf_counter() - start
    if as_json:
        print_json({"report": str(out), "bytes": out_bytes, "seconds": seconds, "files": [str(out)]})
        return
    console().print(f"{out} ({bytes_text(out_bytes)}, {seconds:.1f} s)")


def _pick(sources: tuple[Path, ...], sweep: int | None, budgets: dict[str, str], choose: str | None) -> tuple[Path, str]:
    """Return the store, and the name in it of what keeps budgets.

    Raises: ConfigError for anything but one store, or a configuration that is named as well; as `pick_name`.
    """
    path = store_at(sources[0])
    if len(sources) != 1 or path is None:
        raise ConfigError(f"{', '.join(budgets)}: are of a sweep; name its store, or the folder of its results, alone")
    if choose is not None:
        raise ConfigError(f"{', '.join(budgets)}: {choose[:60]!r} names the configuration already; leave one of the two out")
    return path, pick_name(path, sweep, budgets)


def _watch(sources: tuple[Path, ...], sweep: int | None, port: int) -> None:
    """Serve a sweep's page until the sweep has ended. Raises: ConfigError for anything but one store."""
    path = store_at(sources[0]) or sources[0]
    if len(sources) != 1 or not is_store(path):
        raise ConfigError("--live: follows one sweep; name its store, or the folder of its results")
    from mpnet.report.live import LiveReport

    live = LiveReport(path, sweep, port)
    note(f"{live.address} follows the sweep until it has ended; Ctrl-C leaves it")
    live.serve()
