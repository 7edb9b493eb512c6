# SPDX-License-Identifier: MIT
"""Sections at the end of a network: detection heads, classifiers, losses; and those that only transform values."""

from __future__ import annotations

from typing import Any

from mpnet.formats.cfg.position import Position
from mpnet.formats.cfg.tokens import CfgSection
from mpnet.formats.cfg.tree import read_map, read_tree
from mpnet.model.heads import DECODERS
from mpnet.model.keys import Key
from mpnet.model.layers import (
    ActivationSpec,
    ContrastiveSpec,
    CostSpec,
    DecodedSpec,
    DetectionSpec,
    DropoutSpec,
    EmptySpec,
    GaussianYoloSpec,
    L2normSpec,
    LayerSpec,
    LogisticSpec,
    NormalizationSpec,
    RegionSpec,
    SoftmaxSpec,
    YoloSpec,
)


def _check_channels(section: CfgSection, at: Position, anchors: int, entries: int, classes: int) -> None:
    channels, wanted = at.in_shape[2], anchors * (entries + classes)
    if channels != wanted:
        section.fail(
            f"[{section.name}] with {anchors} anchors and {classes} classes needs {wanted} channels, but the layer before "
            f"has {channels}; set filters={wanted} there"
        )


def _anchors(section: CfgSection, at: Position, num: int) -> tuple[tuple[float, float], ...]:
    """As many as are listed, at least num; what is missing is 0.5, as in Darknet."""
    numbers = section.reals("anchors", 1e-6, 1e6)
    if len(numbers) < 2 * num:
        at.warnings.append(
            f"{section.source}:{section.line}: anchors holds {len(numbers)} numbers for num={num}; Darknet takes 0.5 for "
            "those that are missing, and so does mpnet"
        )
        numbers += (0.5,) * (2 * num - len(numbers))
    return tuple(zip(numbers[:-1:2], numbers[1::2], strict=False))


def _masked(section: CfgSection, at: Position, kind: type[YoloSpec]) -> dict[str, Any]:
    said = section.said(kind)
    num = section.integer("num", 1, 1, 1000)
    anchors = _anchors(section, at, num)
    mask = section.integers("mask", 0, len(anchors) - 1) or tuple(range(num))
    if max(mask) >= num:
        at.warnings.append(
            f"{section.source}:{section.line}: mask goes up to {max(mask)} though num={num}; the anchors listed count"
        )
    _check_channels(section, at, len(mask), kind.entries, said["classes"])
    return at.common(section, at.in_shape) | said | {"mask": mask, "anchors": anchors}


def detection(section: CfgSection, at: Position) -> LayerSpec:
    """[detection]; its input has side * side * (classes + num * 5) values."""
    said = section.said(DetectionSpec)
    if section.integer("coords", 1, 1, 100) != 4:
        section.fail("coords of [detection] must be 4: x, y, width, height", "coords")
    height, width, channels = at.in_shape
    values, wanted = height * width * channels, said["side"] ** 2 * (said["classes"] + 5 * said["boxes"])
    if values != wanted:
        section.fail(f"[detection] needs {wanted} values, but the layer before has {values}")
    return DetectionSpec(**at.common(section, at.in_shape), **said)


def yolo(section: CfgSection, at: Position) -> LayerSpec:
    """[yolo]; its input has len(mask) * (5 + classes) channels, or what its decoder asks for."""
    decoder = section.value("decoder", Key("text", DECODERS), "darknet")
    if decoder != "darknet":
        return _decoded(section, at, decoder)
    return YoloSpec(**_masked(section, at, YoloSpec))


def _decoded(section: CfgSection, at: Position, decoder: str) -> LayerSpec:
    said, num = section.said(DecodedSpec), section.integer("num", 1, 1, 1000)
    anchors: tuple[tuple[float, float], ...] = ()
    mask: tuple[int, ...] = ()
    if decoder in ("yolov5", "ssd"):
        anchors = _anchors(section, at, num)
        mask = section.integers("mask", 0, len(anchors) - 1) or tuple(range(num))
    variances = section.reals("variances", 1e-9, 1e9) or DecodedSpec.variances
    if len(variances) != 4:
        section.fail("variances are four numbers: of x, y, w, h", "variances")
    layer = DecodedSpec(
        **at.common(section, at.in_shape), **said, mask=mask, anchors=anchors, decoder=decoder, variances=variances
    )
    if layer.head_channels not in (0, at.in_shape[2]):
        section.fail(
            f"decoder={decoder} with {len(mask) or 1} anchors and {layer.classes} classes needs {layer.head_channels} "
            f"channels, but the layer before has {at.in_shape[2]}",
            "decoder",
        )
    return layer


def gaussian_yolo(section: CfgSection, at: Position) -> LayerSpec:
    """[Gaussian_yolo]; its input has len(mask) * (9 + classes) channels."""
    return GaussianYoloSpec(**_masked(section, at, GaussianYoloSpec))


def region(section: CfgSection, at: Position) -> LayerSpec:
    """[region]; its input has num * (5 + classes) channels."""
    said = section.said(RegionSpec)
    num, classes = section.integer("num", 1, 1, 1000), said["classes"]
    _check_channels(section, at, num, 5, classes)
    anchors = _anchors(section, at, num)
    tree = read_tree(section, "tree")
    numbers = read_map(section, "map", tree)
    if tree is not None and len(tree) != classes:
        section.fail(f"the tree has {len(tree)} nodes for classes={classes}", "tree")
    raw = at.dialect == "alexeyab" and not said["softmax"] and tree is None
    return RegionSpec(
        **at.common(section, at.in_shape),
        **said,
        mask=tuple(range(num)),
        anchors=anchors,
        tree=tree,
        map=numbers,
        raw_classes=raw,
    )


def softmax(section: CfgSection, at: Position) -> LayerSpec:
    """[softmax]."""
    said, tree = section.said(SoftmaxSpec), read_tree(section, "tree")
    height, width, channels = at.in_shape
    values = height * width * channels
    if values % said["groups"]:
        section.fail(f"groups={said['groups']} does not divide the {values} values of its input", "groups")
    if tree is not None and (len(tree) * said["groups"] != values):
        section.fail(f"the tree has {len(tree)} nodes for {values // said['groups']} values", "tree")
    return SoftmaxSpec(**at.common(section, at.in_shape), **said, tree=tree)


def activation(section: CfgSection, at: Position) -> LayerSpec:
    """[activation]."""
    word = at.activation(section, section.said(ActivationSpec)["activation"])
    return ActivationSpec(**at.common(section, at.in_shape), activation=word)


def normalization(section: CfgSection, at: Position) -> LayerSpec:
    """[normalization]."""
    return NormalizationSpec(**at.common(section, at.in_shape), **section.said(NormalizationSpec))


def l2norm(section: CfgSection, at: Position) -> LayerSpec:
    """[l2norm]."""
    return L2normSpec(**at.common(section, at.in_shape))


def logistic(section: CfgSection, at: Position) -> LayerSpec:
    """[logistic]."""
    return LogisticSpec(**at.common(section, at.in_shape))


def cost(section: CfgSection, at: Position) -> LayerSpec:
    """[cost]."""
    return CostSpec(**at.common(section, at.in_shape))


def contrastive(section: CfgSection, at: Position) -> LayerSpec:
    """[contrastive]."""
    return ContrastiveSpec(**at.common(section, at.in_shape))


def dropout(section: CfgSection, at: Position) -> LayerSpec:
    """[dropout], the identity."""
    return DropoutSpec(**at.common(section, at.in_shape))


def empty(section: CfgSection, at: Position) -> LayerSpec:
    """[empty], the identity."""
    return EmptySpec(**at.common(section, at.in_shape))
