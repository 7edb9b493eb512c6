"""What `mpnet export` names, as a configuration with everything that decides its results: experiment, result, store, cfg."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Mapping

from mpnet.engine.assign import assign, assign_key
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.errors import ConfigError, StoreError
from mpnet.export import Configuration
from mpnet.export.configuration import Material
from mpnet.formats.cfg import parse_cfg, read_cfg_bytes
from mpnet.formats.experiment_yaml import read_experiment
from mpnet.formats.weights import read_weights
from mpnet.kernels.isa import kernels
from mpnet.report.configuration import find_configuration
from mpnet.spec.experiment import Experiment
from mpnet.trial.experiment import open_workbench
from mpnet.trial.heads import class_names
from mpnet.trial.reopen import reopen


@dataclass(frozen=True)
class Decision:
    """configuration: what was named. cfg: the network file. notes: what the user should know, one line each."""

    configuration: Configuration
    cfg: Path
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Files:
    """Files in place of those that a source names; None: as it says."""

    cfg: Path | None = None
    weights: Path | None = None
    names: Path | None = None

    def over(self, sources: Mapping[str, Any]) -> dict[str, str]:
        """These files over those of a result's `sources`."""
        named = {"cfg": self.cfg, "weights": self.weights, "names": self.names}
        return {**sources, **{name: str(path) for name, path in named.items() if path is not None}}


NO_FILES = Files()


def decide(source: str, files: Files = NO_FILES, overrides: tuple[str, ...] = (), *, complete: bool = True) -> Decision:
    """The configuration that SOURCE names: EXPERIMENT.yaml, RUN, STORE[:KEY] or NET.cfg.

    overrides: KEY=VALUE over an experiment file.
    complete:  whether document and names are wanted, for which weights and pictures are read at once; else they are
               read when somebody asks for options, weights or plan, and a missing file is no obstacle before.
    Raises: StoreError, ConfigError, FormatError, DataError; each message is one line with place and remedy.
    """
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        return _of_experiment(read_experiment(path, overrides), files, complete)
    if overrides:
        raise ConfigError("--set changes an experiment file; of a result, a store or a cfg nothing can be set")
    return _of_cfg(path, files) if path.suffix == ".cfg" else _of_stored(source, files, complete)


def _of_experiment(experiment: Experiment, files: Files, complete: bool) -> Decision:
    model = experiment.model
    cfg = files.cfg or model.cfg
    model = replace(model, cfg=cfg, weights=files.weights or model.weights, names=files.names or model.names)
    experiment = replace(experiment, model=model)
    if complete:
        bench = open_workbench(experiment)
        return Decision(bench.configuration(bench.assign()), cfg)

    def bring() -> Material:
        bench = open_workbench(experiment)
        return bench.options, bench.prepared

    content = read_cfg_bytes(cfg)
    network = parse_cfg(content, str(cfg), model.dialect)
    section = experiment.precision
    return Decision(Configuration(network, assign(network, section.default, dict(section.layers)), bring, content,
                                  document={"name": experiment.name}), cfg)


def _of_stored(source: str, files: Files, complete: bool) -> Decision:
    found = find_configuration(source)
    sources = files.over(found.document.get("sources") or {})
    if not sources.get("cfg"):
        raise StoreError(f"{source}: does not name its network file; name it with --cfg")
    document = {**found.document, "sources": sources}
    if complete:
        bench = reopen(document)
        known = {name: document[name] for name in ("metrics", "agreement", "id", "created") if document.get(name)}
        values = {"values": dict(found.values)} if found.values else {}
        return Decision(bench.configuration(assign_key(bench.network, found.key), {**known, **values}), Path(sources["cfg"]))

    def bring() -> Material:
        bench = reopen(document)
        return bench.options, bench.prepared

    path = Path(sources["cfg"])
    content = read_cfg_bytes(path)
    notes = () if hashlib.sha256(content).hexdigest() == found.document["digests"].get("cfg") else (
        f"{path} is not the file that was measured (its digest differs); the precisions are written all the same",)
    network = parse_cfg(content, str(path), (found.document.get("protocol") or {}).get("dialect", "auto"))
    return Decision(Configuration(network, assign_key(network, found.key), bring, content, document=document),
                    path, notes)


def _of_cfg(path: Path, files: Files) -> Decision:
    path = files.cfg or path
    content = read_cfg_bytes(path)
    network = parse_cfg(content, str(path))
    weights = files.weights or path.with_suffix(".weights")

    def bring() -> Material:
        options = resolve_options(network)
        if any(options.of(layer.index).calibrated for layer in network.convolutions):
            raise ConfigError(f"{path}: asks for calibrated ranges, which need pictures; name an experiment file instead")
        if not weights.is_file():
            raise ConfigError(f"{weights}: no such file; name the weights with --weights")
        values = read_weights(weights, network)
        return options, Prepared(network, values, kernels(), batch_norm=options.batch_norm, equalise=options.equalise)

    names = class_names(network, files.names)
    document = {"name": path.stem, "digests": {"cfg": network.digest}, "sources": {"cfg": str(path.absolute())}}
    return Decision(Configuration(network, assign(network), bring, content, names, document), path)

