# SPDX-License-Identifier: MIT
"""A configuration as a bundle: the steps that a session runs, in its order, and the weights as kernels are given them."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from typing import Any, Mapping, Sequence

import numpy as np

from mpnet import __version__
from mpnet.arrays import Array
from mpnet.config.identity import ARITHMETIC_VERSION
from mpnet.detection.decode import yolo_heads
from mpnet.detection.decoders import ImportedHead
from mpnet.detection.nms import GREEDY_BETA, KINDS, NmsOptions
from mpnet.detection.other_heads import CLASSES_BY, POINTS, OtherHead
from mpnet.engine.covering import covering_plans, random_plans, step_signature
from mpnet.engine.folding import conv_shape
from mpnet.engine.fuse import fuse_plan
from mpnet.engine.memory import plan_arena
from mpnet.engine.operations import Blur, Convolve, Normalize
from mpnet.engine.options import EngineOptions
from mpnet.engine.plan import Plan, Step
from mpnet.engine.prepare import Constants, Prepared
from mpnet.engine.rules import kernel_activation
from mpnet.errors import EngineError, PrecisionError
from mpnet.export import Configuration
from mpnet.export.bundle.records import Data, Records, Texts, assembled
from mpnet.export.bundle.weights import as_stored
from mpnet.formats.documents.json_text import finite
from mpnet.kernels.core import constant
from mpnet.kernels.interface import ACTIVATION_CODE, ConvShape
from mpnet.kernels.native import PRECISION_CODE, TYPE_CODE
from mpnet.kernels.packing import pack_for
from mpnet.model.network import NETWORK_INPUT, LayerSpec, Shape
from mpnet.model.precision import INT8, INT16, PRECISIONS, USUAL_NAMES, Precision

CHECKS = 8
_HEADS = {
    "region": constant("MPB_HEAD_REGION"),
    "gaussian": constant("MPB_HEAD_GAUSSIAN"),
    "detection": constant("MPB_HEAD_DETECTION"),
}


def bundle_bytes(
    configuration: Configuration, levels: Sequence[str] = (), profile: bool = True
) -> tuple[bytes, dict[str, Any]]:
    """Return the content of the file, and what `mpnet export --json` says of it.

    levels:  ISA levels, of any architecture, for which packed weights are put in as well.
    profile: put in what `mprun --profile` runs: every step that any configuration of the network has.
    Raises: ConfigError for an unknown level, EngineError naming the layer for an operation that bundles do not have.
    """
    bundle = _Bundle(configuration.prepared)
    bundle.program(fuse_plan(configuration.plan), constant("MPB_CONFIGURATION"))
    timed = _timed(configuration)
    if profile and configuration.network.convolutions:
        options = _with_all_ranges(configuration)
        for plan in covering_plans(configuration.network, options, timed):
            bundle.timed(plan, constant("MPB_COVERING"))
        for plan in random_plans(configuration.network, options, timed, CHECKS):
            bundle.timed(plan, constant("MPB_CHECK"))
    bundle.heads(configuration)
    for level in levels:
        bundle.packed(level)
    content = bundle.content(configuration, timed)
    return content, {"bytes": len(content), "packed": list(levels), "programs": len(bundle.programs)}


def _timed(configuration: Configuration) -> tuple[str, ...]:
    plan = configuration.precisions
    used_names = {str(plan[index]) for index in plan.weighted}
    if configuration.options.integer_only:
        code_names = {name for name, row in PRECISIONS.items() if row.carries_scale}
        return tuple(name for name in PRECISIONS if name in code_names & {*used_names, INT8.name, INT16.name})
    return tuple(name for name in PRECISIONS if name in USUAL_NAMES or name in used_names)


def _with_all_ranges(configuration: Configuration) -> EngineOptions:
    """Return ranges for tensors that were not calibrated: where only time matters one is as good as another."""
    every = dict.fromkeys([NETWORK_INPUT, *range(len(configuration.network.layers))], (-1.0, 1.0))
    return replace(configuration.options, ranges={**every, **configuration.options.ranges})


class _Bundle:
    """Sections as they fill."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self.programs = Records("mpb_program")
        self._slots, self._steps = Records("mpb_slot"), Records("mpb_step")
        self._convolutions, self._packed = Records("mpb_convolution"), Records("mpb_packed")
        self._heads = Records("mpb_head")
        self._numbers: list[int] = []
        self._anchors: list[tuple[float, float]] = []
        self._texts, self._data = Texts(), Data()
        self._numbers_by_operation: dict[Any, int] = {}
        self._constants_by_operation: dict[Convolve, Constants] = {}
        self._with_weights: dict[int, int] = {}  # by layer, the record that has weights
        self._weights: dict[int, tuple[ConvShape, Precision, Array]] = {}  # by record, what `packed` packs

    def timed(self, plan: Plan, purpose: int) -> None:
        """Add a fused plan that is there to be timed, unless its ranges cannot be scaled in whole numbers.

        Then it never runs.
        """
        try:
            self.program(plan, purpose)
        except (EngineError, PrecisionError):
            if not plan.options.integer_only:
                raise

    def program(self, plan: Plan, purpose: int) -> None:
        """Add a fused plan. Raises: EngineError, PrecisionError, before anything of it is added."""
        # Floats first and together: where weights are packed for the level, nobody touches the pages of the others.
        for step in plan.steps:
            if isinstance(step.operation, Convolve):
                self._floats(self._timed(step.operation, purpose))
        tensors = [plan.slots[step.output].shape for step in plan.steps]
        input_shapes = [[plan.slots[index].shape for index in step.inputs] for step in plan.steps]
        step_values = [
            step.operation.step_values(self._prepared, shapes, tensor)
            for step, shapes, tensor in zip(plan.steps, input_shapes, tensors, strict=True)
        ]
        arena = plan_arena(plan)
        first_slot, first_step = len(self._slots), len(self._steps)
        for slot, offset in zip(plan.slots, arena.offsets, strict=True):
            height, width, channels = slot.shape
            self._slots.add(
                at=offset, h=height, w=width, c=channels, type=TYPE_CODE[slot.precision.stored.dtype], layer=slot.layer
            )
        for step, shapes, values in zip(plan.steps, input_shapes, step_values, strict=True):
            layer = plan.network.layers[step.layer]
            fields = _step_fields(step, layer)
            if isinstance(step.operation, Convolve):
                fields["convolution"] = self._convolution(step.operation, purpose)
            if isinstance(step.operation, Blur):
                fields["convolution"] = self._blur(step.operation, shapes[0], step.input_precision, step.layer)
            if isinstance(step.operation, Normalize):
                fields["length"], starts = step.operation.rows(shapes[0])
                fields |= {"first_start": self._list(starts), "segments": len(starts) - 1}
            self._steps.add(
                values=self._data.piece(b"" if values is None else values.tobytes()),
                layer=step.layer,
                output=step.output,
                first_input=self._list(step.inputs),
                inputs=len(step.inputs),
                signature=self._texts.add(step_signature(plan, step)),
                **fields,
            )
        self.programs.add(
            arena_bytes=arena.size_bytes,
            purpose=purpose,
            key=self._texts.add(plan.precision.key),
            first_slot=first_slot,
            slots=len(plan.slots),
            first_step=first_step,
            steps=len(plan.steps),
            first_output=self._list(plan.outputs),
            outputs=len(plan.outputs),
        )

    def _list(self, values: Sequence[int]) -> int:
        self._numbers += values
        return len(self._numbers) - len(values)

    def _timed(self, operation: Convolve, purpose: int) -> Convolve:
        """Return what its weights belong to.

        Bias correction needs means that perhaps nobody has measured, and changes no time.
        """
        return operation.alone if purpose == constant("MPB_CONFIGURATION") else replace(operation.alone, corrected=False)

    def _floats(self, operation: Convolve) -> dict[str, dict[str, int]]:
        """Return the pieces of bias and scale; of whole numbers, all that sums become codes by is the bias."""
        constants = self._constants(operation)
        scale = b"" if constants.weight_scale is None else constants.weight_scale.tobytes()
        bias = b"".join(array.tobytes() for array in constants.integer or (constants.bias,))
        return {"bias": self._data.piece(bias), "scale": self._data.piece(scale)}

    def _constants(self, operation: Convolve) -> Constants:
        if operation not in self._constants_by_operation:
            self._constants_by_operation[operation] = self._prepared.constants(operation)
        return self._constants_by_operation[operation]

    def _convolution(self, operation: Convolve, purpose: int) -> int:
        map, operation = operation.map, self._timed(operation, purpose)
        if (operation, map) in self._numbers_by_operation:
            return self._numbers_by_operation[operation, map]
        layer = operation.layer_of(self._prepared.network)
        word = kernel_activation(layer.activation) if map is None else map.activation
        stands_in = -1 if purpose == constant("MPB_CONFIGURATION") else self._with_weights[layer.index]
        constants = self._constants(operation)
        shape, integer_constants = conv_shape(layer), constants.integer
        number = self._convolutions.add(
            weights=self._data.piece(b"" if stands_in >= 0 else as_stored(constants.weights, operation.precision)),
            layer=layer.index,
            precision=PRECISION_CODE[operation.precision.name],
            activation=ACTIVATION_CODE[word if integer_constants is None else "linear"],
            shape=list(astuple(shape)),
            stands_in=stands_in,
            bias_words=0 if integer_constants is None else integer_constants.bias.itemsize // 4,
            **self._floats(operation),
        )
        self._numbers_by_operation[operation, map] = number
        if stands_in < 0:
            self._with_weights[layer.index] = number
            self._weights[number] = shape, operation.precision, constants.weights
        return number

    def _blur(self, operation: Blur, tensor: Shape, precision: Precision, layer: int) -> int:
        """Write antialiasing, whose few weights every program has for itself."""
        key = operation, tensor, precision
        if key not in self._numbers_by_operation:
            shape, weights = operation.conv_shape(tensor), operation.weights(tensor[2])
            number = self._numbers_by_operation[key] = self._convolutions.add(
                weights=self._data.piece(as_stored(weights, precision)),
                layer=layer,
                precision=PRECISION_CODE[precision.name],
                activation=ACTIVATION_CODE["linear"],
                shape=list(astuple(shape)),
                stands_in=-1,
                bias=self._data.piece(np.zeros(tensor[2], np.float32).tobytes()),
                scale=self._data.piece(b""),
            )
            self._weights[number] = shape, precision, weights
        return self._numbers_by_operation[key]

    def heads(self, configuration: Configuration) -> None:
        """Add what box decoding needs."""
        for output, head in enumerate(yolo_heads(configuration.network)):
            first_anchor = len(self._anchors)
            self._anchors += head.anchors
            if isinstance(head.other, ImportedHead):
                self._anchors += head.other.layer.head_anchors
            self._heads.add(
                output=output,
                first_anchor=first_anchor,
                anchors=len(head.anchors),
                classes=head.classes,
                scale_x_y=head.scale_x_y,
                new_coords=head.new_coords,
                **self._head_fields(head.other),
            )

    def _head_fields(self, head: OtherHead | ImportedHead | None) -> dict[str, Any]:
        """Return the fields in which a head differs from [yolo]."""
        if head is None:
            return {}
        if isinstance(head, ImportedHead):
            return {"kind": constant("MPB_HEAD_IMPORTED"), "raw_classes": head.layer.classes, "how": head.decoding}
        fields = {
            "kind": _HEADS[head.kind],
            "raw_classes": head.classes,
            "classes_by": CLASSES_BY.index(head.classes_by),
            "point": POINTS.index(head.point),
            "background": int(head.background),
            "side": head.side,
            "root": int(head.root),
        }
        if head.tree is None:
            return fields
        return fields | {
            "groups": len(head.tree.starts) - 1,
            "first_start": self._list(head.tree.starts),
            "first_parent": self._list(head.tree.parents),
            "mapped": int(bool(head.map)),
            "first_map": self._list(head.map),
        }

    def packed(self, level: str) -> None:
        """Add the configuration's weights as a level reads them."""
        for number, (shape, precision, weights) in self._weights.items():
            content = pack_for(level, shape, precision, weights)
            self._packed.add(table=level.encode(), weights=self._data.piece(content), convolution=number)

    def content(self, configuration: Configuration, timed: Sequence[str]) -> bytes:
        """Return the content of the file."""
        origin = json.dumps(finite(_origin(configuration)), ensure_ascii=True, allow_nan=False, default=str)
        sections = [
            self._network(configuration, timed).section(),
            self.programs.section(),
            self._slots.section(),
            self._steps.section(),
            (4, np.array(self._numbers, np.int32).tobytes()),
            self._convolutions.section(),
            self._heads.section(),
            (8, np.array(self._anchors, np.float32).tobytes()),
            self._packed.section(),
            (1, bytes(self._texts.content)),
            (1, origin.encode()),
        ]
        return assembled(sections, self._data.pieces)

    def _network(self, configuration: Configuration, timed: Sequence[str]) -> Records:
        network, document = configuration.network, configuration.document
        protocol, digests = document.get("protocol") or {}, document.get("digests") or {}
        last_head = network.yolos[-1] if network.yolos else None
        kind = protocol.get("nms_kind") or (last_head.nms_kind if last_head else "default")
        nms = NmsOptions(
            kind, protocol.get("nms", 0.45), last_head.beta_nms if last_head and last_head.beta_nms else GREEDY_BETA
        )
        classes = network.classes
        names = configuration.names or tuple(f"class-{index}" for index in range(classes))
        text = self._texts
        records = Records("mpb_network")
        records.add(
            confidence=protocol.get("confidence", 0.005),
            nms=nms.threshold,
            in_h=network.height,
            in_w=network.width,
            in_c=network.channels,
            classes=classes,
            layers=len(network.layers),
            resize=constant(f"MP_{protocol.get('resize', network.resize).upper()}"),
            nms_kind=KINDS[nms.kind],
            nms_beta=GREEDY_BETA if nms.kind == "greedynms" else nms.beta,
            max_detections=protocol.get("max_detections") or 0,
            category_ids=self._list(_category_ids(document, classes)),
            class_names=text.add_list(names[:classes]),
            layer_names=text.add_list(layer.name for layer in network.layers),
            nms_name=text.add_list((nms.kind, network.dialect, configuration.prepared.batch_norm)),
            cfg=text.add((document.get("sources") or {}).get("cfg") or network.source),
            cfg_digest=text.add(network.digest),
            weights_digest=text.add(digests.get("weights") or ""),
            precisions=text.add(",".join(timed)),
            arithmetic=text.add(str(ARITHMETIC_VERSION)),
        )
        return records


def _step_fields(step: Step, layer: LayerSpec) -> dict[str, Any]:
    """Return what a step's operation decides. Raises: EngineError for one that bundles do not have."""
    if not step.operation.bundle:
        raise EngineError(
            f"--to bundle: layer {layer.index} ({layer.name}): bundles have no {step.operation.name}; "
            "run this network with mpnet itself"
        )
    return {"operation": constant(f"MPB_{step.operation.bundle}"), **step.operation.step_fields()}


def _category_ids(document: Mapping[str, Any], classes: int) -> list[int]:
    """Return the ids of the classes in files of detections: the data set's own, else 1, 2, ..."""
    category_ids = (document.get("dataset") or {}).get("category_ids")
    return list(category_ids) if category_ids and len(category_ids) == classes else list(range(1, classes + 1))


def _origin(configuration: Configuration) -> dict[str, Any]:
    document = configuration.document
    members = {
        key: document[key]
        for key in ("name", "id", "created", "protocol", "digests", "sources", "metrics", "agreement", "values")
        if document.get(key)
    }
    return {"mpnet": __version__, "precision": configuration.precisions.key, **members, **configuration.operating_point}
