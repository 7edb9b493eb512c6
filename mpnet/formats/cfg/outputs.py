# SPDX-License-Identifier: MIT
"""Sections at the end of a network: detection heads, classifiers, losses; and those that only transform values."""

from __future__ import annotations

from typing import Any

from mpnet.formats.cfg.position import Position, SectionReader, keeps_shape
from mpnet.formats.cfg.tokens import CfgSection
from mpnet.formats.cfg.tree import read_map, read_tree
from mpnet.model.heads import DECODERS
from mpnet.model.layers import (
    ContrastiveSpec,
    CostSpec,
    DecodedSpec,
    DetectionSpec,
    DropoutSpec,
    EmptySpec,
    GaussianYoloSpec,
    LayerSpec,
    RegionSpec,
    SoftmaxSpec,
    YoloSpec,
)


def _check_channels(section: CfgSection, position: Position, anchors: int, entries: int, classes: int) -> None:
    channels, wanted = position.in_shape[2], anchors * (entries + classes)
    if channels != wanted:
        section.misfit(
            f"[{section.name}] with {anchors} anchors and {classes} classes needs {wanted} channels, but the layer before "
            f"has {channels}; set filters={wanted} there"
        )


def _anchors(section: CfgSection, position: Position, num: int) -> tuple[tuple[float, float], ...]:
    """Return as many anchors as are listed, at least num; what is missing is 0.5, as in Darknet."""
    numbers = section.reals("anchors", 1e-6, 1e6)
    if len(numbers) < 2 * num:
        position.warnings.append(
            f"{section.source}:{section.line}: anchors holds {len(numbers)} numbers for num={num}; Darknet takes 0.5 for "
            "those that are missing, and so does mpnet"
        )
        numbers += (0.5,) * (2 * num - len(numbers))
    return tuple(zip(numbers[:-1:2], numbers[1::2], strict=False))


def _check_listed(section: CfgSection, position: Position, anchors: int, entries: int) -> None:
    """Check that a head without mask is not one that lacks it: its input has channels for some of the anchors."""
    channels = position.in_shape[2]
    if channels % entries == 0 and channels < anchors * entries:
        chosen = channels // entries
        section.misfit(
            f"[{section.name}] has no mask, so all its {anchors} anchors count, which need {anchors * entries} channels; the "
            f"layer before has {channels}, for {chosen} of them: name them, such as mask={','.join(map(str, range(chosen)))}"
        )


def _masked(section: CfgSection, position: Position, kind: type[YoloSpec]) -> dict[str, Any]:
    fields = section.fields_of(kind)
    num = section.integer("num", 1, 1, 1000)
    anchors = _anchors(section, position, num)
    mask = section.integers("mask", 0, len(anchors) - 1) or tuple(range(num))
    if max(mask) >= num:
        position.warnings.append(
            f"{section.source}:{section.line}: mask goes up to {max(mask)} though num={num}; the anchors listed count"
        )
    if section.text("mask") is None:
        _check_listed(section, position, len(mask), kind.entries + fields["classes"])
    _check_channels(section, position, len(mask), kind.entries, fields["classes"])
    return position.common(section, position.in_shape) | fields | {"mask": mask, "anchors": anchors}


def detection(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [detection] section; its input has side * side * (classes + num * 5) values."""
    fields = section.fields_of(DetectionSpec)
    if section.integer("coords", 1, 1, 100) != 4:
        section.fail("coords of [detection] must be 4: x, y, width, height", "coords")
    height, width, channels = position.in_shape
    values, wanted = height * width * channels, fields["side"] ** 2 * (fields["classes"] + 5 * fields["boxes"])
    if values != wanted:
        section.misfit(f"[detection] needs {wanted} values, but the layer before has {values}")
    return DetectionSpec(**position.common(section, position.in_shape), **fields)


def yolo(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [yolo] section; its input has len(mask) * (5 + classes) channels, or what its decoder asks for."""
    decoder = section.word("decoder", DECODERS, "darknet")
    if decoder != "darknet":
        return _decoded(section, position, decoder)
    return YoloSpec(**_masked(section, position, YoloSpec))


def _decoded(section: CfgSection, position: Position, decoder: str) -> LayerSpec:
    fields, num = section.fields_of(DecodedSpec), section.integer("num", 1, 1, 1000)
    anchors: tuple[tuple[float, float], ...] = ()
    mask: tuple[int, ...] = ()
    if decoder in ("yolov5", "ssd"):
        anchors = _anchors(section, position, num)
        mask = section.integers("mask", 0, len(anchors) - 1) or tuple(range(num))
    variances = section.reals("variances", 1e-9, 1e9) or DecodedSpec.variances
    if len(variances) != 4:
        section.fail("variances are four numbers: of x, y, w, h", "variances")
    layer = DecodedSpec(
        **position.common(section, position.in_shape),
        **fields,
        mask=mask,
        anchors=anchors,
        decoder=decoder,
        variances=variances,
    )
    if layer.head_channels not in (0, position.in_shape[2]):
        section.misfit(
            f"decoder={decoder} with {len(mask) or 1} anchors and {layer.classes} classes needs {layer.head_channels} "
            f"channels, but the layer before has {position.in_shape[2]}",
            "decoder",
        )
    return layer


def gaussian_yolo(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [Gaussian_yolo] section; its input has len(mask) * (9 + classes) channels."""
    return GaussianYoloSpec(**_masked(section, position, GaussianYoloSpec))


def region(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [region] section; its input has num * (5 + classes) channels."""
    fields = section.fields_of(RegionSpec)
    num, classes = section.integer("num", 1, 1, 1000), fields["classes"]
    _check_channels(section, position, num, 5, classes)
    anchors = _anchors(section, position, num)
    tree = read_tree(section, "tree")
    numbers = read_map(section, "map", tree)
    if tree is not None and len(tree) != classes:
        section.fail(f"the tree has {len(tree)} nodes for classes={classes}", "tree")
    raw = position.dialect == "alexeyab" and not fields["softmax"] and tree is None
    return RegionSpec(
        **position.common(section, position.in_shape),
        **fields,
        mask=tuple(range(num)),
        anchors=anchors,
        tree=tree,
        map=numbers,
        raw_classes=raw,
    )


def softmax(section: CfgSection, position: Position) -> LayerSpec:
    """Read a [softmax] section; its groups and its tree must divide the values of its input."""
    fields, tree = section.fields_of(SoftmaxSpec), read_tree(section, "tree")
    height, width, channels = position.in_shape
    values = height * width * channels
    if values % fields["groups"]:
        section.fail(f"groups={fields['groups']} does not divide the {values} values of its input", "groups")
    if tree is not None and (len(tree) * fields["groups"] != values):
        section.fail(f"the tree has {len(tree)} nodes for {values // fields['groups']} values", "tree")
    return SoftmaxSpec(**position.common(section, position.in_shape), **fields, tree=tree)


_TRAINING = (
    "jitter ignore_thresh truth_thresh iou_thresh random resize max absolute iou_normalizer obj_normalizer "
    "cls_normalizer delta_normalizer max_delta iou_loss iou_thresh_kind label_smooth_eps objectness_smooth "
    "focal_loss counters_per_class track_history_size sim_thresh dets_for_track dets_for_show track_ciou_norm "
    "embedding_layer rescore thresh softmax bias_match show_details uc_normalizer coords"
)
_TRAINING_REGION = (
    f"{_TRAINING} object_scale noobject_scale class_scale coord_scale mask_scale classfix log mask hue exposure saturation"
)

READERS = {
    "yolo": SectionReader(yolo, _TRAINING, alexeyab_keys={"new_coords": "0", "scale_x_y": "1"}),
    "Gaussian_yolo": SectionReader(gaussian_yolo, _TRAINING, alexeyab=True),
    "region": SectionReader(region, _TRAINING_REGION),
    "detection": SectionReader(detection, f"{_TRAINING_REGION} side reorg"),
    "softmax": SectionReader(softmax, "spatial noloss"),
    "cost": SectionReader(keeps_shape(CostSpec), "type scale ratio noobj thresh smooth"),
    "contrastive": SectionReader(
        keeps_shape(ContrastiveSpec),
        "classes temperature yolo_layer max_delta cls_normalizer contrastive_neg_max steps embedding_size detection",
        alexeyab=True,
    ),
    "dropout": SectionReader(keeps_shape(DropoutSpec), "probability dropblock dropblock_size_rel dropblock_size_abs"),
    "empty": SectionReader(keeps_shape(EmptySpec), alexeyab=True),
}
