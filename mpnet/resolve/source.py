# SPDX-License-Identifier: MIT
"""The configuration that a command names as EXPERIMENT.yaml, RUN, STORE[:KEY] or NET.cfg: as an experiment, or finished."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Mapping, Sequence

from mpnet.config.experiment import Experiment, ModelSection
from mpnet.engine.assign import assign, assign_key
from mpnet.engine.calibrate import range_requests
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.errors import ConfigError, StoreError
from mpnet.export import Configuration
from mpnet.export.configuration import Material
from mpnet.export.yaml import precision_section
from mpnet.formats.cfg.read import parse_cfg, read_cfg_bytes
from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.labels.class_names import class_names
from mpnet.formats.weights import read_weights
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.trial.experiment import open_workbench
from mpnet.trial.identity import configuration_of
from mpnet.trial.reopen import experiment_of, reopen
from mpnet.trial.run_result import Provenance

if TYPE_CHECKING:
    from mpnet.resolve.stored import StoredConfiguration


@dataclass(frozen=True)
class NamedConfiguration:
    """A configuration that a command was given. cfg: its network file. notes: what the user should know, one line each."""

    configuration: Configuration
    cfg: Path
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Files:
    """Files in place of those that a source names; None: as it says."""

    cfg: Path | None = None
    weights: Path | None = None
    names: Path | None = None

    def over(self, sources: Mapping[str, str]) -> dict[str, str]:
        """Return a result's `sources` with these files in place of its own."""
        replacements = {"cfg": self.cfg, "weights": self.weights, "names": self.names}
        return {**sources, **{name: str(path) for name, path in replacements.items() if path is not None}}


NO_FILES = Files()


def experiment_named(source: str, files: Files = NO_FILES, overrides: Sequence[str] = ()) -> tuple[Experiment, str]:
    """Return the experiment that measures the configuration which SOURCE names, and a remark or ''.

    What a result or a sweep's trial stands for keeps its data, protocol, quantisation and precisions, and its results lie
    beside it; a cfg has no data. overrides: KEY=VALUE over all of it, of a cfg none.
    Raises: StoreError, ConfigError, FormatError, DataError; each message is one line with place and remedy.
    """
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        return _with_files(read_experiment(path, overrides), files), ""
    if path.suffix == ".cfg":
        _nothing_to_set(overrides)
        path = files.cfg or path
        model = ModelSection(path, files.weights or path.with_suffix(".weights"), files.names)
        return Experiment(path.stem, model, source=str(path)), ""
    stored, provenance = _stored(source, files)
    network, _, remark = _measured_cfg(provenance)
    section = precision_section(network, assign_key(network, stored.key))
    precision = {"default": section.default, "layers": dict(section.layers)}
    return experiment_of(provenance, precision, stored.output, overrides), remark


def configuration_named(
    source: str, files: Files = NO_FILES, overrides: Sequence[str] = (), *, complete: bool = True
) -> NamedConfiguration:
    """Return what SOURCE (EXPERIMENT.yaml, RUN, STORE[:KEY] or NET.cfg) names, with all that decides its results.

    overrides: KEY=VALUE over an experiment file.
    complete:  whether document and names are wanted, for which weights and images are read at once; else they are
               read when somebody asks for options, weights or plan, and a missing file is no obstacle before.
    Raises: StoreError, ConfigError, FormatError, DataError; each message is one line with place and remedy.
    """
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        return _of_experiment(_with_files(read_experiment(path, overrides), files), complete)
    _nothing_to_set(overrides)
    return _of_cfg(path, files) if path.suffix == ".cfg" else _of_stored(source, files, complete)


def _nothing_to_set(overrides: Sequence[str]) -> None:
    if overrides:
        raise ConfigError("--set changes an experiment file; of a result, a store or a cfg nothing can be set")


def _with_files(experiment: Experiment, files: Files) -> Experiment:
    model = experiment.model
    return replace(
        experiment,
        model=replace(
            model, cfg=files.cfg or model.cfg, weights=files.weights or model.weights, names=files.names or model.names
        ),
    )


def _of_experiment(experiment: Experiment, complete: bool) -> NamedConfiguration:
    model = experiment.model
    if complete:
        bench = open_workbench(experiment)
        return NamedConfiguration(configuration_of(bench, bench.assign()), model.cfg)

    def open_material() -> Material:
        bench = open_workbench(experiment)
        return bench.options, bench.prepared

    content = read_cfg_bytes(model.cfg)
    network = parse_cfg(content, str(model.cfg), model.dialect)
    section = experiment.precision
    return NamedConfiguration(
        Configuration(
            network,
            assign(network, section.default, dict(section.layers)),
            open_material,
            content,
            document={"name": experiment.name, "sources": {} if model.parent is None else {"parent": str(model.parent)}},
        ),
        model.cfg,
    )


def _of_stored(source: str, files: Files, complete: bool) -> NamedConfiguration:
    stored, provenance = _stored(source, files)
    path = Path(provenance.sources["cfg"])
    if complete:
        bench = reopen(provenance, stored.output)
        document = {} if stored.result is None else stored.result.document
        described = {name: document[name] for name in ("metrics", "agreement", "id", "created") if document.get(name)}
        values = {"values": dict(stored.values)} if stored.values else {}
        return NamedConfiguration(configuration_of(bench, assign_key(bench.network, stored.key), {**described, **values}), path)

    def open_material() -> Material:
        bench = reopen(provenance, stored.output)
        return bench.options, bench.prepared

    network, content, remark = _measured_cfg(provenance)
    document = {
        **({} if stored.result is None else stored.result.document),
        "name": provenance.name,
        "protocol": provenance.protocol,
        "digests": provenance.digests,
        "sources": provenance.sources,
    }
    return NamedConfiguration(
        Configuration(network, assign_key(network, stored.key), open_material, content, document=document),
        path,
        (remark,) if remark else (),
    )


def _stored(source: str, files: Files) -> tuple[StoredConfiguration, Provenance]:
    """Return a result or a sweep's trial, and its provenance with the files where they are now."""
    from mpnet.resolve.stored import find_configuration  # brings sweeps

    stored = find_configuration(source)
    sources = files.over(stored.provenance.sources)
    if not sources.get("cfg"):
        raise StoreError(f"{source}: does not name its network file; name it with --cfg")
    return stored, replace(stored.provenance, sources=sources)


def _measured_cfg(provenance: Provenance) -> tuple[NetworkSpec, bytes, str]:
    """Return the network file that a provenance names, what it holds, and '' or that it is another one than was measured."""
    path = Path(provenance.sources["cfg"])
    content = read_cfg_bytes(path)
    network = parse_cfg(content, str(path), str(provenance.protocol.get("dialect", "auto")))
    same = hashlib.sha256(content).hexdigest() == provenance.digests.get("cfg")
    return (
        network,
        content,
        ""
        if same
        else (f"{path} is not the file that was measured (its digest differs); its precisions are taken all the same"),
    )


def _of_cfg(path: Path, files: Files) -> NamedConfiguration:
    path = files.cfg or path
    content = read_cfg_bytes(path)
    network = parse_cfg(content, str(path))
    weights = files.weights or path.with_suffix(".weights")

    def open_material() -> Material:
        options = resolve_options(network)
        if range_requests(network, options):
            raise ConfigError(f"{path}: asks for calibrated ranges, which need images; name an experiment file instead")
        if not weights.is_file():
            raise ConfigError(f"{weights}: no such file; name the weights with --weights")
        values = read_weights(weights, network)
        return options, Prepared.under(options, network, values, kernels())

    names = class_names(network, files.names)
    document = {"name": path.stem, "digests": {"cfg": network.digest}, "sources": {"cfg": str(path.absolute())}}
    return NamedConfiguration(Configuration(network, assign(network), open_material, content, names, document), path)
