# SPDX-License-Identifier: MIT
"""What agents read: the skill's commands run in their order, and its tables name what the documents have."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from mpnet.cli.main import COMMANDS
from mpnet.evaluation.noninferiority import State
from tests.cli.conftest import Mpnet
from tests.conftest import DemoModel
from tests.diagnose.patients import change_nothing, write_changed
from tests.test_docs_blocks import FENCE, understood

SKILL = Path("tools/skill/SKILL.md")


def commands_of(text: str) -> list[list[str]]:
    return [shlex.split(line) for _, block in FENCE.findall(text) for line in block.splitlines()]


def test_the_skill_says_when_it_is_for_and_names_what_there_is(repository: Path) -> None:
    text = (repository / SKILL).read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    described = yaml.safe_load(head)
    assert set(described) == {"name", "description"}
    assert "Use when" in described["description"]
    assert re.findall(r"^## (.*)$", body, re.MULTILINE) == [
        "What to run, in this order",
        "What to do with each answer",
        "When to stop",
        "What must not be claimed",
    ]
    for name, *arguments in commands_of(text):
        assert (name, understood(arguments)) == ("mpnet", "")
    assert {row.split()[0] for row in re.findall(r"^\| `([a-z -]+)` \|", body, re.MULTILINE)} <= set(COMMANDS)
    assert set(re.findall(r"`state` is `([\w ]+)`", body)) <= set(get_args(State))


@pytest.mark.slow
def test_the_skills_commands_run_in_their_order(mpnet: Mpnet, repository: Path, demo_model: DemoModel, tmp_path: Path) -> None:
    """On a trained network with a few images: exits are those of its table, and the documents have the keys that it reads."""
    write_changed(demo_model, tmp_path, change_nothing)
    documents: dict[str, Any] = {}
    for _, *arguments in commands_of((repository / SKILL).read_text(encoding="utf-8")):
        command = arguments[0]
        if command == "sweep":
            arguments += ["-q", "--no-time", "--set", "sweep.strategy=one_at_a_time", "--set", "runtime.threads=1"]
        process = mpnet(*arguments)
        assert process.returncode in {"run": (0, 4), "sweep": (0, 1), "pick": (0, 1)}.get(command, (0,)), process.stderr
        if "--json" in arguments:
            documents[command] = json.loads(process.stdout)
    assert documents["doctor"]["findings"] == []
    [loss] = documents["run"]["shown_budget"]["losses"]
    assert loss["state"] in get_args(State)
    assert loss["loss"] <= loss["most"]
    assert {"shown", "more_images"} <= documents["sweep"]["recommended"].keys()
    assert documents["pick"]["pick"] is not None
    assert (tmp_path / "chosen.cfg").is_file()


def test_agents_find_every_page_that_the_first_one_names(repository: Path) -> None:
    text = (repository / "AGENTS.md").read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]
    assert len(links) >= 5
    assert [link for link in links if not (repository / link).is_file()] == []


def test_the_sites_list_has_every_page_with_a_sentence(repository: Path) -> None:
    spec = importlib.util.spec_from_file_location("site_hooks", repository / "tools" / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    site = yaml.safe_load((repository / "mkdocs.yml").read_text(encoding="utf-8"))

    class Config:
        docs_dir = str(repository / "docs")
        nav = site["nav"]

    hooks.on_config(Config)
    text = hooks.list_pages(site["site_name"], site["site_description"], Config.nav, repository / "docs")
    assert text.startswith(f"# mpnet\n\n> {site['site_description']}\n\n## Start\n\n- [")
    pages = {path.relative_to(repository / "docs") for path in (repository / "docs").rglob("*.md")}
    entries = dict(re.findall(r"^- \[.+\]\((\S+)\): (.+)$", text, re.MULTILINE))
    names = {str(page.with_suffix(".html")).replace("README.html", "index.html") for page in pages}
    assert set(entries) == names
    assert all(len(sentence) > 10 for sentence in entries.values())
