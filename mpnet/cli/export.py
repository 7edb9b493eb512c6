"""`mpnet export`: a chosen configuration as a file that other programs read."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import click

from mpnet.cli.options import declare
from mpnet.cli.output import note, print_json
from mpnet.engine.assign import assign_key
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.errors import StoreError
from mpnet.export import Configuration, describe, export, targets
from mpnet.formats.atomic import write_bytes
from mpnet.formats.cfg import parse_cfg, read_cfg_bytes
from mpnet.report.configuration import find_configuration
from mpnet.trial.reopen import reopen


@declare(
    "mpnet export runs/example/0123456789abcdef --to cfg -o mixed.cfg",
    "mpnet export runs/aix/sweep.sqlite:fqqqqqqqhqh --to cfg | diff net.cfg -",
    quiet=False,
)
@click.argument("source", metavar="RUN_OR_STORE[:KEY]")
@click.option("--to", "target", required=True, type=click.Choice(list(targets())),
              help=f"What to write. {describe(targets())}.")
@click.option("--cfg", type=click.Path(path_type=Path, dir_okay=False),
              help="The network file to change.  [default: the one that was measured]")
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False),
              help="The file to write.  [default: standard output]")
def command(source: str, target: str, cfg: Path | None, out: Path | None, as_json: bool) -> None:
    """Write the configuration of a run, or of a sweep's trial, into its network file.

    Comments and everything else stay; only precision keys that differ change, so that `diff` shows the decision. KEY is
    a precision string, `chosen` (when absent) or `baseline`.
    """
    found = find_configuration(source)
    measured = (found.document.get("sources") or {}).get("cfg")
    if cfg is None and not measured:
        raise StoreError(f"{source}: does not name its network file; name it with --cfg")
    path = cfg or Path(str(measured))
    content = read_cfg_bytes(path)
    if hashlib.sha256(content).hexdigest() != found.document["digests"].get("cfg"):
        note(f"{path} is not the file that was measured (its digest differs); the precisions are written all the same")
    network = parse_cfg(content, str(path))

    def bring() -> tuple[EngineOptions, Prepared]:
        bench = reopen(found.document)
        return bench.options, bench.prepared

    configuration = Configuration(network, assign_key(network, found.key), bring, content, (), found.document)
    exported = export(target, configuration)
    if out is not None:
        write_bytes(out, exported.content)
    if as_json:
        print_json({"source": source, "precision": found.key, "cfg": str(path), "written": str(out) if out else None,
                    **exported.details, "text": exported.content.decode("utf-8", "replace") if out is None else None})
    elif out is None:
        sys.stdout.buffer.write(exported.content)
