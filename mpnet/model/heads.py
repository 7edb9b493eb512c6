# SPDX-License-Identifier: MIT
"""Detection heads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mpnet.model.keys import flag, integer, number, word
from mpnet.model.layer import MAX_CHANNELS, LayerSpec
from mpnet.model.tree import Tree

NMS_KINDS = ("default", "greedynms", "diounms", "cornersnms")
DECODERS = ("darknet", "yolov5", "yolov8", "yolov8_obb", "rtmdet", "picodet", "yolox", "ssd", "none")
"""How a [yolo] section's tensor becomes boxes: Darknet's way, or that of the programs that networks are imported from."""


@dataclass(frozen=True)
class YoloSpec(LayerSpec, kind="yolo"):
    """A detection head; always fp32.

    mask:       which of the anchors this head uses.
    anchors:    all of them: (width, height) in pixels of the network's input.
    classes:    number of classes; input channels = len(mask) * (5 + classes).
    scale_x_y:  stretch of the box centres around the middle of the cell.
    nms_kind:   'default' (plain IoU), 'greedynms', 'diounms' or 'cornersnms'.
    new_coords: whether the input already went through logistic (Scaled-YOLOv4's encoding).
    """

    mask: tuple[int, ...] = ()
    anchors: tuple[tuple[float, float], ...] = ()
    classes: int = field(default=20, metadata=integer(1, MAX_CHANNELS, cfg="classes"))
    scale_x_y: float = field(default=1.0, metadata=number(0.1, 10.0, cfg="scale_x_y"))
    nms_kind: str = field(default="default", metadata=word(NMS_KINDS, cfg="nms_kind"))
    beta_nms: float = field(default=0.6, metadata=number(0.0, 10.0, cfg="beta_nms"))
    new_coords: bool = field(default=False, metadata=flag(cfg="new_coords"))

    always_fp32: ClassVar[bool] = True
    entries: ClassVar[int] = 5
    """Values of an anchor beside its classes."""
    objectness: ClassVar[int | None] = 4
    """Place of the objectness among an anchor's values; None: the input has none as such."""

    @property
    def scored_classes(self) -> int:
        """Return the classes that its detections have."""
        return self.classes

    @property
    def head_anchors(self) -> tuple[tuple[float, float], ...]:
        """Return the anchors of this head, in mask order."""
        return tuple(self.anchors[i] for i in self.mask)


@dataclass(frozen=True)
class GaussianYoloSpec(YoloSpec, kind="Gaussian_yolo", short="gaussian"):
    """A detection head whose boxes come with uncertainties; input channels = len(mask) * (9 + classes).

    point: which point of a box x and y are.
    """

    point: str = field(default="center", metadata=word(("center", "left_top", "right_bottom"), cfg="yolo_point"))

    entries: ClassVar[int] = 9
    objectness: ClassVar[int | None] = 8


@dataclass(frozen=True)
class RegionSpec(YoloSpec, kind="region"):
    """YOLOv2's detection head: anchors in cells.

    softmax:  probabilities of classes by softmax; else each by itself: logistic in the original program, raw in AlexeyAB's.
    coords:   values of a box; objectness is value 4.
    tree:     classes are nodes of a tree, their probability the product on the way to the root. map: node of each class.
    raw_classes: AlexeyAB's way without softmax. background: objectness takes part in the softmax of classes.
    """

    coords: int = field(default=4, metadata=integer(4, 4, cfg="coords"))
    softmax: bool = field(default=False, metadata=flag(cfg="softmax"))
    background: bool = field(default=False, metadata=flag(cfg="background"))
    tree: Tree | None = None
    map: tuple[int, ...] = ()
    raw_classes: bool = False

    @property
    def scored_classes(self) -> int:
        """Count the classes that boxes are scored for: those of the map, where there is one."""
        return len(self.map) or self.classes


@dataclass(frozen=True)
class DetectionSpec(YoloSpec, kind="detection"):
    """YOLOv1's detection head: a grid of side x side cells with one set of classes each and `boxes` boxes.

    root: whether width and height are square roots. softmax: of the classes of each cell.
    """

    side: int = field(default=7, metadata=integer(1, 1024, cfg="side"))
    boxes: int = field(default=1, metadata=integer(1, 1000, cfg="num"))
    root: bool = field(default=False, metadata=flag(cfg="sqrt"))
    softmax: bool = field(default=False, metadata=flag(cfg="softmax"))

    objectness: ClassVar[int | None] = None


@dataclass(frozen=True)
class DecodedSpec(YoloSpec, kind="yolo"):
    """A [yolo] section with a `decoder` of another program: csrc/detect/imported.c has the formulas.

    decoder:   yolov5: anchors x (x, y, w, h, objectness, classes). yolov8: 4 x reg_max bins of distances, classes.
               yolov8_obb: these and an angle; its boxes are the upright ones around the oriented ones. rtmdet: as yolov8,
               distances from the cell's corner instead of its middle. picodet: as yolov8, and an alignment: a class's score is
               the root of the product of its and the alignment's logistic functions. yolox: x, y, w, h, objectness, classes.
               ssd: anchors x `coords` values, then anchors x classes. none: tensors are handed out, nothing is decoded.
    variances: of ssd: factors of x, y, w, h.
    softmax:   of ssd: class 0 is the background and scores are shares of all classes; else each class by its logistic.
    yx:        of ssd: a box is y, x, h, w. linear: its size is w, not e^w, of the anchor's; of yolov8_obb: the angle is the
               value itself, in radians, not pi (logistic - 1/4); of rtmdet: a single bin is the distance, not its logarithm.
    """

    decoder: str = "none"
    reg_max: int = field(default=16, metadata=integer(1, 64, cfg="reg_max"))
    coords: int = field(default=4, metadata=integer(4, 1024, cfg="coords"))
    softmax: bool = field(default=True, metadata=flag(cfg="softmax"))
    yx: bool = field(default=False, metadata=flag(cfg="yx"))
    linear: bool = field(default=False, metadata=flag(cfg="linear"))
    variances: tuple[float, float, float, float] = (0.1, 0.1, 0.2, 0.2)

    objectness: ClassVar[int | None] = None

    @property
    def head_channels(self) -> int:
        """Return the channels that the head's tensor must have; 0 where any number fits."""
        anchors, classes = len(self.mask), self.classes
        return {
            "yolov5": anchors * (5 + classes),
            "yolov8": 4 * self.reg_max + classes,
            "rtmdet": 4 * self.reg_max + classes,
            "yolov8_obb": 4 * self.reg_max + classes + 1,
            "picodet": 4 * self.reg_max + classes + 1,
            "yolox": 5 + classes,
            "ssd": anchors * (self.coords + classes + self.softmax),
        }.get(self.decoder, 0)

    @property
    def decoding(self) -> dict[str, object]:
        """Return its decoder and that one's keys, as plain values."""
        keys: dict[str, object] = {"decoder": self.decoder}
        if self.decoder in ("yolov8", "picodet"):
            keys["reg_max"] = self.reg_max
        if self.decoder in ("yolov8_obb", "rtmdet"):
            keys |= {"reg_max": self.reg_max, "linear": int(self.linear)}
        if self.decoder == "ssd":
            keys |= {
                "coords": self.coords,
                "softmax": int(self.softmax),
                "yx": int(self.yx),
                "linear": int(self.linear),
                "variances": list(self.variances),
            }
        return keys
