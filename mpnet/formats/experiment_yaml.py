"""Experiment YAML -> Experiment. Every message names the line; docs/experiments.md lists the keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Sequence

from mpnet.errors import ConfigError
from mpnet.formats.quantization_yaml import quantization_options, quantization_section, single_option
from mpnet.formats.yaml_section import Section, mapping, text, texts
from mpnet.formats.yaml_tree import Mapping, Node, Scalar, parse_yaml, read_yaml_file, shown
from mpnet.formats.yaml_tree import Sequence as ListNode
from mpnet.spec.experiment import (
    BATCH_NORMS,
    DATA_FORMATS,
    NMS_KINDS,
    RESIZES,
    SAMPLERS,
    STRATEGIES,
    BudgetSection,
    CalibrationSection,
    ConstraintSection,
    DataSection,
    DetectionSection,
    Experiment,
    ModelSection,
    OptionRange,
    PrecisionSection,
    RuntimeSection,
    SpaceSection,
    SweepSection,
)
from mpnet.spec.measures import limits, objectives
from mpnet.spec.precision import PRECISIONS

__all__ = ["parse_experiment", "quantization_options", "read_experiment"]

_PRECISION_NAMES = tuple(PRECISIONS)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_TOP = ("name", "model", "data", "detection", "precision", "quantization", "sweep", "runtime", "output", "baseline")
# Mappings whose keys are not fixed words but may hold dots themselves.
_SELECTOR_MAPS = ("precision.layers", "sweep.space.layers", "sweep.space.quantization")
MAX_IMAGES = 10_000_000
MAX_THREADS = 1024


def read_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment file; `overrides` are texts such as `detection.nms=0.5`, applied before anything is checked.

    Paths in the file count from its folder, paths in overrides as well.
    Raises: ConfigError, one line with file and line number.
    """
    path = Path(path)
    return _experiment(read_yaml_file(path), overrides, str(path), path.parent)


def parse_experiment(data: bytes | str, overrides: Sequence[str] = (), source: str = "experiment",
                     base: str | Path = ".") -> Experiment:
    """As `read_experiment`, from text; `base` is the folder that paths count from."""
    return _experiment(parse_yaml(data, source), overrides, source, Path(base))


def _experiment(root: Node, overrides: Sequence[str], source: str, base: Path) -> Experiment:
    tree = mapping(root, "the file")
    for override in overrides:
        _override(tree, override)
    top = Section(tree, "", _TOP)
    name = top.text("name")
    if name is None:
        raise top.missing("name")
    if not _NAME.match(name):
        raise ConfigError(
            f"{tree.items['name'].place}: name is {shown(name)}; it names a folder: use up to 100 of letters, digits, "
            "'.', '_' and '-', the first a letter or digit"
        )
    model = top.section("model", ("cfg", "weights", "names", "batch_norm"))
    if model is None:
        raise top.missing("model")
    baseline_node = tree.items.get("baseline")
    says_none = isinstance(baseline_node, Scalar) and baseline_node.text in ("none", "null", "~")
    return Experiment(
        name=name,
        model=_model(model, base),
        data=_data(top, base),
        detection=_detection(top),
        precision=_precision(top),
        quantization=quantization_section(top),
        sweep=_sweep(top, base),
        runtime=_runtime(top),
        output=top.path_of("output", base) or base / "runs",
        baseline=None if says_none else top.text("baseline", _PRECISION_NAMES) or "fp32",
        source=source,
    )


def _override(tree: Mapping, override: str) -> None:
    """Put `key.key=value` into the tree."""
    source = "--set " + "".join(c if c.isprintable() else " " for c in override[:80])
    keys, equals, value = override.partition("=")
    parts = _split(keys.strip())
    if not equals or not all(parts):
        raise ConfigError(f"{source}: is not of the form key.key=value, such as detection.nms=0.5")
    node = parse_yaml(value, source, numbered=False) if value.strip() else Scalar("", False, source)
    at = tree
    for depth, part in enumerate(parts[:-1], start=1):
        below = at.items.setdefault(part, Mapping(source))
        at.key_places.setdefault(part, source)
        if not isinstance(below, Mapping):
            said = ".".join(parts[:depth])
            raise ConfigError(
                f"{source}: {said!r} holds one value in {below.place}; set it whole: --set '{said}={{...}}'"
            )
        at = below
    at.items[parts[-1]] = node
    at.key_places[parts[-1]] = source


def _split(keys: str) -> list[str]:
    """The parts of a dotted key; below a mapping of selectors all the rest is one, such as `2..8`."""
    for prefix in _SELECTOR_MAPS:
        if keys.startswith(f"{prefix}.") and len(keys) > len(prefix) + 1:
            return [*prefix.split("."), keys.removeprefix(f"{prefix}.")]
    return keys.split(".")


def _model(section: Section, base: Path) -> ModelSection:
    cfg, weights = section.path_of("cfg", base), section.path_of("weights", base)
    if cfg is None:
        raise section.missing("cfg")
    if weights is None:
        raise section.missing("weights")
    return ModelSection(
        cfg, weights, section.path_of("names", base),
        section.text("batch_norm", BATCH_NORMS) or ModelSection.batch_norm,
    )


def _data(top: Section, base: Path) -> DataSection | None:
    section = top.section("data", ("format", "images", "labels", "annotations", "limit", "calibration"))
    if section is None:
        return None
    kind = section.text("format", DATA_FORMATS)
    images = section.path_of("images", base)
    labels, annotations = section.path_of("labels", base), section.path_of("annotations", base)
    if kind is None:
        raise section.missing("format")
    if images is None:
        raise section.missing("images")
    needed, other = ("labels", "annotations") if kind == "yolo" else ("annotations", "labels")
    if section.node_of(needed) is None:
        raise section.missing(needed)
    if (node := section.node_of(other)) is not None:
        raise ConfigError(f"{node.place}: data.{other} does not go with format {kind}; remove it or change data.format")
    calibration = CalibrationSection()
    if (part := section.section("calibration", ("images", "count", "seed"))) is not None:
        count, seed = part.integer("count", 1, MAX_IMAGES), part.integer("seed", 0)
        calibration = CalibrationSection(
            part.path_of("images", base),
            calibration.count if count is None else count,
            calibration.seed if seed is None else seed,
        )
    return DataSection(kind, images, labels, annotations, section.integer("limit", 1, MAX_IMAGES), calibration)


def _detection(top: Section) -> DetectionSection:
    section = top.section("detection", ("resize", "confidence", "nms", "nms_kind", "max_detections"))
    default = DetectionSection()
    if section is None:
        return default
    confidence, nms = section.number("confidence", 0, 1), section.number("nms", 0, 1)
    return DetectionSection(
        section.text("resize", RESIZES) or default.resize,
        default.confidence if confidence is None else confidence,
        default.nms if nms is None else nms,
        section.text("nms_kind", NMS_KINDS),
        section.integer("max_detections", 1, 100_000),
    )


def _precision(top: Section) -> PrecisionSection:
    section = top.section("precision", ("default", "layers"))
    if section is None:
        return PrecisionSection()
    layers: list[tuple[str, str]] = []
    if (node := section.node_of("layers")) is not None:
        for selector, value in mapping(node, "precision.layers").items.items():
            layers.append((selector, text(value, f"precision.layers.{selector}", _PRECISION_NAMES)))
    return PrecisionSection(section.text("default", _PRECISION_NAMES), tuple(layers))


def _runtime(top: Section) -> RuntimeSection:
    section = top.section("runtime", ("threads", "isa", "batch"))
    default = RuntimeSection()
    if section is None:
        return default
    node = section.node_of("threads")
    automatic = isinstance(node, Scalar) and node.text == "auto"
    return RuntimeSection(
        None if automatic else section.integer("threads", 1, MAX_THREADS),
        section.text("isa") or default.isa,
        section.integer("batch", 1, 1024) or default.batch,
    )


def _sweep(top: Section, base: Path) -> SweepSection | None:
    section = top.section("sweep", (
        "strategy", "precisions", "space", "objectives", "constraints", "budget", "holdout", "seed", "sampler",
        "latency",
    ))
    if section is None:
        return None
    strategy = section.text("strategy", STRATEGIES)
    if strategy is None:
        raise section.missing("strategy")
    default = SweepSection(strategy)
    holdout, seed = section.number("holdout", 0, 0.95), section.integer("seed", 0)
    return SweepSection(
        strategy,
        section.texts("precisions", _PRECISION_NAMES) or default.precisions,
        _space(section),
        section.texts("objectives", objectives()) or default.objectives,
        _constraints(section),
        _budget(section),
        default.holdout if holdout is None else holdout,
        default.seed if seed is None else seed,
        section.text("sampler", SAMPLERS) or default.sampler,
        section.path_of("latency", base),
    )


def _space(sweep: Section) -> SpaceSection:
    section = sweep.section("space", ("layers", "tied", "quantization"))
    if section is None:
        return SpaceSection()
    layers: list[tuple[str, tuple[str, ...]]] = []
    if (node := section.node_of("layers")) is not None:
        for selector, value in mapping(node, "sweep.space.layers").items.items():
            layers.append((selector, texts(value, f"sweep.space.layers.{selector}", _PRECISION_NAMES)))
    tied: list[tuple[str, ...]] = []
    if (node := section.node_of("tied")) is not None:
        groups = node.items if isinstance(node, ListNode) else [node]
        tied = [texts(group, "sweep.space.tied") for group in groups]
    ranges: list[OptionRange] = []
    if (node := section.node_of("quantization")) is not None:
        for path, value in mapping(node, "sweep.space.quantization").items.items():
            values = texts(value, f"sweep.space.quantization.{path}")
            options = tuple(single_option(path, written, value.place) for written in values)
            ranges.append(OptionRange(path, values, options))
    return SpaceSection(tuple(layers), tuple(tied), tuple(ranges))


def _constraints(sweep: Section) -> ConstraintSection:
    section = sweep.section("constraints", ("ap_drop", "ap_drop_relative", *(row.name for row in limits())))
    if section is None:
        return ConstraintSection()
    said = {row.name: section.integer(row.name, 1) if row.whole else section.number(row.name, 0) for row in limits()}
    return ConstraintSection(
        section.number("ap_drop", 0, 100), section.number("ap_drop_relative", 0, 1),
        {name: limit for name, limit in said.items() if limit is not None},
    )


def _budget(sweep: Section) -> BudgetSection:
    section = sweep.section("budget", ("trials", "seconds"))
    if section is None:
        return BudgetSection()
    return BudgetSection(section.integer("trials", 1), section.number("seconds", 0))
