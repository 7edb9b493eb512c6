# SPDX-License-Identifier: MIT
"""Targets that a configuration can be exported to: one module or package per target, found by its name.

A new target is a file here that declares `TARGET`, and its tests; `mpnet export --to NAME` takes it up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping

from mpnet.engine.assign import PrecisionPlan, assign
from mpnet.engine.options import LayerQuantization
from mpnet.errors import ConfigError, PrecisionError
from mpnet.export.configuration import Configuration, describe_layer
from mpnet.model.network import LayerSpec
from mpnet.model.precision import PRECISIONS, USUAL_NAMES, Precision
from mpnet.packages import declared, require

__all__ = [
    "Configuration",
    "Exported",
    "Option",
    "Support",
    "Target",
    "describe",
    "everything",
    "export",
    "nearest",
    "target",
    "target_for",
    "targets",
    "unsupported",
]

Support = Callable[[LayerSpec, Precision, LayerQuantization, str], str]
"""(layer, its precision, how it is quantised if that is int8, flavour) -> '' or why it cannot be expressed."""


def everything(layer: LayerSpec, precision: Precision, quantization: LayerQuantization, flavour: str) -> str:
    """Return the support of a target that can express whatever mpnet can."""
    return ""


@dataclass(frozen=True)
class Exported:
    """A configuration in the form of a target.

    files:   suffix -> content; the first is the main one, the others stand beside it under its name.
    details: what `mpnet export --json` says besides.
    layers:  by layer index: the precision that was asked for, the one that was written and, where they differ or
             something is worth saying, why, else ''. Layers that nothing is said of are left out.
    notes:   what whoever runs the files should know, one line each.
    """

    files: Mapping[str, bytes]
    details: Mapping[str, Any] = field(default_factory=dict)
    layers: Mapping[int, tuple[str, str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def content(self) -> bytes:
        """Return the content of the main file."""
        return next(iter(self.files.values()))

    def files_at(self, out: Path) -> dict[Path, bytes]:
        """Return the main file as it was named, the others under its name with suffixes of their own."""
        main_suffix, *_ = self.files
        return {out if suffix == main_suffix else out.with_suffix(suffix): content for suffix, content in self.files.items()}


@dataclass(frozen=True)
class Option:
    """An option of a target.

    name:    as `write` knows it. help: of its flag of `mpnet export`; '': it is for Python alone.
    metavar: what follows the flag, for --help; '': nothing does.
    """

    name: str
    help: str = ""
    metavar: str = ""

    @property
    def flag(self) -> str:
        """Return the option as it is written on the command line."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class Target:
    """One form that other programs read.

    what, suffix: for --help; suffix of the main file. lacks: what it cannot express, '' for nothing.
    write:        (configuration, flavour, options such as {"with_boxes": True}) -> files; raises MpnetError, one line,
                  for a configuration that it cannot express.
    flavours:     name -> what `write` wants to know of it; the first is the default. Empty: there is only one.
    support:      whether a layer can be expressed.
    precisions:   names of those that it has besides fp32, fp16, int8 and their variants, by flavour; None: all there are.
    options:      those that `write` knows, by their names.
    reads_weights: whether `write` asks for more than the network file: weights, ranges, the plan.
    integer_only: the flavours that write configurations of whole numbers alone.
    packages:     requirements that writing has besides mpnet's own; extra: the extra of mpnet that brings them.
    """

    what: str
    suffix: str
    write: Callable[[Configuration, str, Mapping[str, Any]], Exported]
    lacks: str = ""
    packages: tuple[str, ...] = ()
    extra: str = ""
    flavours: Mapping[str, Any] = field(default_factory=dict)
    support: Support = everything
    precisions: Mapping[str, tuple[str, ...]] | None = field(default_factory=dict)
    options: tuple[Option, ...] = ()
    reads_weights: bool = True
    integer_only: tuple[str, ...] = ()

    def refuses(self, layer: LayerSpec, precision: Precision, quantization: LayerQuantization, flavour: str) -> str:
        """Return '' or why a layer cannot be expressed."""
        if self.precisions is not None and not _is_usual(precision) and precision.name not in self.precisions.get(flavour, ()):
            activations_text = "" if precision.multiplies_bytes else f" beside {precision.stored.name}"
            type_text = (
                f"weights of {precision.weight_bits} bits{activations_text}" if precision.is_narrow else precision.stored.name
            )
            return f"it has no {type_text} that mpnet writes"
        return self.support(layer, precision, quantization, flavour)

    def flavour(self, name: str) -> str:
        """Return the flavour that a name means; '' is the first. Raises: ConfigError listing the known ones."""
        if not name:
            return next(iter(self.flavours), "")
        if name not in self.flavours:
            hint = f"known are {', '.join(self.flavours)}" if self.flavours else "this target has none; leave it out"
            raise ConfigError(f"--flavour {name!r}: unknown; {hint}")
        return name


def _is_usual(precision: Precision) -> bool:
    return precision.base in USUAL_NAMES and not precision.is_narrow


def targets() -> dict[str, Target]:
    """Return all targets by name; what writing needs is imported when it is needed."""
    return declared(__name__, __path__, "TARGET", Target)


def columns(known_targets: Mapping[str, Target]) -> dict[str, tuple[Target, str]]:
    """Return (target, flavour) by the name of its column: `onnx`, or `tflite/armnn` where there are several."""
    by_name = {}
    for name, target in known_targets.items():
        for flavour in target.flavours or ("",):
            by_name[f"{name}/{flavour}" if len(target.flavours) > 1 else name] = (target, flavour)
    return by_name


def split_flavour(name: str, flavour: str) -> tuple[str, str]:
    """Return target and flavour of a name such as `onnx/openvino`, as `columns` makes them; other names stay.

    Raises: ConfigError where the name has another flavour than the one that is asked for beside it.
    """
    target_name, slash, own_flavour = name.partition("/")
    if slash and flavour not in ("", own_flavour):
        raise ConfigError(f"--to {name}: is another flavour than --flavour {flavour}; leave one of the two out")
    return target_name, own_flavour or flavour


def target(name: str) -> Target:
    """Return the target of a name. Raises: ConfigError listing the known ones."""
    known_targets = targets()
    if name not in known_targets:
        raise ConfigError(f"--to {name!r}: unknown; known are {', '.join(known_targets)}")
    return known_targets[name]


def target_for(name: str, out: Path | None) -> str:
    """Return the target that was named, '': the one that a file's suffix means.

    Raises: ConfigError for an unknown one, for a suffix that means none or several, and for one that another target has.
    """
    known_targets = targets()
    if name:
        suffix = target(name).suffix
        targets_by_suffix = {row.suffix: target_name for target_name, row in known_targets.items()}
        if out is not None and out.suffix != suffix and out.suffix in targets_by_suffix:
            raise ConfigError(
                f"-o {out}: {out.suffix} is a file of --to {targets_by_suffix[out.suffix]}; name it {out.stem}{suffix}"
            )
        return name
    file = "" if out is None else f"{out.stem}.yaml" if out.suffix == ".yml" else out.name
    fitting = [name for name, row in known_targets.items() if file.endswith(row.suffix)]
    if len(fitting) != 1:
        problem = f"{out}: its suffix says nothing of what to write" if out else "nothing says what to write"
        raise ConfigError(
            f"{problem}; name --to, one of {', '.join(known_targets)}, or a file with -o whose suffix says it, such as "
            f"{', '.join(sorted(row.suffix for row in known_targets.values()))}"
        )
    return fitting[0]


def describe(known_targets: Mapping[str, Target]) -> str:
    """Return the targets for --help."""
    return "; ".join(
        f"{name}: {target.what} ({target.suffix}){f', without {target.lacks}' if target.lacks else ''}"
        for name, target in known_targets.items()
    )


def export(name: str, configuration: Configuration, flavour: str = "", options: Mapping[str, Any] | None = None) -> Exported:
    """Write a configuration as the target `name`.

    Raises: ConfigError for an unknown flavour or option, for missing or old packages, and for layers that the target
    cannot express, naming them and the nearest configuration that it can; as the target does.
    """
    chosen_target = target(name)
    flavour = chosen_target.flavour(flavour)
    set_options = {option: value for option, value in (options or {}).items() if value}
    for option in set_options.keys() - {option.name for option in chosen_target.options}:
        raise ConfigError(f"--{option.replace('_', '-')}: --to {name} knows no such option; leave it out")
    require(f"--to {name}", chosen_target.packages, chosen_target.extra)
    refused = unsupported(chosen_target, configuration, flavour)
    if refused:
        raise ConfigError(_refusal(name, chosen_target, configuration, flavour, refused))
    if chosen_target.reads_weights and flavour not in chosen_target.integer_only and configuration.is_integer_only:
        raise ConfigError(
            f"--to {name}: quantization.integer_only is written by --to bundle and --to tflite --flavour integer alone; use "
            "one of them, or leave it out"
        )
    return chosen_target.write(configuration, flavour, set_options)


def unsupported(chosen_target: Target, configuration: Configuration, flavour: str) -> dict[int, str]:
    """Return by layer index why the target cannot express those layers at their precision."""
    plan = configuration.precisions
    if chosen_target.support is everything and (chosen_target.precisions is None or all(map(_is_usual, plan.precisions))):
        return {}
    return _refused(chosen_target, configuration, plan, flavour)


def nearest(chosen_target: Target, configuration: Configuration, flavour: str) -> PrecisionPlan | None:
    """Return the precisions nearest to a configuration's that the target can express; None when no precision helps.

    Of a layer that it cannot express: the same stored type in mpnet's plain arithmetic, then the next higher
    precisions, then lower ones.
    """
    network, plan = configuration.network, configuration.precisions
    overrides = {index: plan[index] for index in (*plan.weighted, *plan.keyed)}
    for _ in range(len(network.layers) + 1):
        refused = _refused(chosen_target, configuration, plan, flavour)
        if not refused:
            return plan
        index = min(refused)
        layer, requested = network.layers[index], plan[index]
        quantization = configuration.options.of(index)
        alternative = next(
            (
                candidate
                for candidate in _by_distance(requested)
                if (layer.has_weights or candidate is candidate.tensor)
                and not layer.always_fp32
                and not chosen_target.refuses(layer, candidate, quantization, flavour)
            ),
            None,
        )
        if alternative is None or (index in overrides and overrides[index] is alternative):
            return None
        overrides[index] = alternative
        try:
            plan = assign(network, overrides=overrides)
        except PrecisionError:
            return None
    return None


def _refused(chosen_target: Target, configuration: Configuration, plan: PrecisionPlan, flavour: str) -> dict[int, str]:
    options = configuration.options
    reasons = {}
    for layer in configuration.network.layers:
        reason = chosen_target.refuses(layer, plan[layer.index], options.of(layer.index), flavour)
        if reason:
            reasons[layer.index] = reason
    return reasons


def _by_distance(requested: Precision) -> list[Precision]:
    """Return the other precisions, the nearest first."""
    other_precisions = [precision for precision in PRECISIONS.values() if precision is not requested]
    return sorted(
        other_precisions,
        key=lambda precision: (
            precision is not requested.tensor,
            precision.rank < requested.rank,
            abs(precision.rank - requested.rank),
            precision is not precision.tensor,
        ),
    )


def _refusal(name: str, chosen_target: Target, configuration: Configuration, flavour: str, refused: Mapping[int, str]) -> str:
    index = min(refused)
    other_layers = len(refused) - 1
    more_text = f" (nor can {other_layers} more layer{'s' if other_layers > 1 else ''} be exported)" if other_layers else ""
    nearest_plan = nearest(chosen_target, configuration, flavour)
    remedy = (
        f"the nearest configuration that can be exported is {nearest_plan.key}"
        if nearest_plan
        else "no precision helps; choose another target"
    )
    variant = f" --flavour {flavour}" if flavour else ""
    return (
        f"--to {name}{variant}: {describe_layer(configuration.network, index)} as {configuration.precisions[index]}: "
        f"{refused[index]}{more_text}; {remedy}"
    )
