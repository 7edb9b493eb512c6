# SPDX-License-Identifier: MIT
"""One sweep recommends one configuration, in the same words wherever it is told."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest

from mpnet.api import sweep
from mpnet.formats.documents.typed import build
from mpnet.report.data.sweep_sentences import recommendation_text
from mpnet.sweep.result import SweepResult
from mpnet.sweep.store import Subject, TrialStore
from tests.cli.conftest import Mpnet, document_of

SECTION = "sweep={strategy: one_at_a_time, precisions: [fp32, fp16, int8], holdout: 0.4}"
SWEEP = ("--set", SECTION, "--workers", "1", "--no-time")


@pytest.mark.parametrize("budget", [None, "100 agreement", "0.001 agreement"])
def test_every_output_of_a_sweep_names_the_same_configuration(mpnet: Mpnet, experiment: Path, budget: str | None) -> None:
    budget_option = () if budget is None else ("--max-loss", budget)
    document = json.loads(mpnet("sweep", experiment, *SWEEP, *budget_option, "--json").stdout)
    key, store = document["recommended"]["precision"], document["store"]
    sentence = recommendation_text(build(SweepResult, document))
    assert document["recommended"]["reason"] in sentence
    assert sentence.startswith("Recommended is ")
    terminal = mpnet("sweep", experiment, *SWEEP, *budget_option).stdout
    assert sentence in " ".join(terminal.split())
    assert f"export {store}:recommended" in terminal
    # The status, the report's page and summary, and the statement.
    assert document_of(mpnet("sweep", "--status", store, "--json"))["findings"]["recommended"]["precision"] == key
    report_document = document_of(mpnet("report", store, "-o", "page.html", "--no-compute", "--json"))
    assert report_document["summary"][0] == sentence
    folder = experiment.parent
    page = html.unescape((folder / "page.html").read_text(encoding="utf-8"))
    assert sentence.replace("-", "−") in page.replace("-", "−")
    assert page.index("<h3>recommended") < page.index('<article class="pick">') + 100
    assert f'The recommended configuration <small class="key" title="{key}">' in page
    document_of(mpnet("report", store, "--statement", "-o", "statement.html", "--no-compute", "--json"))
    assert sentence in html.unescape((folder / "statement.html").read_text(encoding="utf-8"))
    # Names of configurations: with and without a name, and by the folder of the sweep.
    for source in (f"{store}:recommended", store, f"{Path(store).parent}:recommended", f"{store}:{key}"):
        assert document_of(mpnet("export", source, "--to", "cfg", "-o", "out.cfg", "--no-time", "--json"))["precision"] == key


def test_the_api_recommends_what_the_command_does(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("sweep", experiment, *SWEEP, "--json"))
    outcome = sweep(experiment, [SECTION], workers=1, timed=False)
    assert outcome.recommended == build(SweepResult, document).recommended
    assert outcome.recommendation == recommendation_text(build(SweepResult, document))
    assert outcome.recommendation in outcome._repr_html_()
    assert outcome.picks.columns["pick"][0].startswith("recommended")


def test_a_store_from_before_recommendations_has_one(mpnet: Mpnet, experiment: Path) -> None:
    document = document_of(mpnet("sweep", experiment, *SWEEP, "--max-loss", "100 agreement", "--json"))
    recommended = document.pop("recommended")
    with TrialStore.open_or_read(Path(document["store"]), _subject(Path(document["store"]))) as store:
        for name in store.notes("findings"):
            store.set_note(name, json.dumps(document))
    read_recommended = document_of(mpnet("sweep", "--status", document["store"], "--json"))["findings"]["recommended"]
    assert read_recommended == recommended


def _subject(path: Path) -> Subject:
    with TrialStore.read(path) as store:
        return store.subject
