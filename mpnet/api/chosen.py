"""Names on the command line to configurations: RUN, STORE or STORE:KEY."""

from __future__ import annotations

from dataclasses import dataclass

from mpnet.experiments.result import read_result


@dataclass(frozen=True)
class Found:
    """key: precision string; cfg: path of the network file, '' when unknown; cfg_digest: SHA-256 of what was measured."""

    key: str
    cfg: str
    cfg_digest: str


def find_configuration(source: str) -> Found:
    """The configuration that `source` names. Raises: StoreError when there is none."""
    document = read_result(source).document
    sources = document.get("sources") or {}
    return Found(str(document["precision"].get("key", "")), str(sources.get("cfg", "")),
                 str(document["digests"].get("cfg", "")))
