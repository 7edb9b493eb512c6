# SPDX-License-Identifier: MIT
"""One network, ready to run: forward arrays, find objects in images or say what they show."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from html import escape
from pathlib import Path
from typing import Mapping, Protocol, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from mpnet.data.classifications import best_classes, class_scores
from mpnet.detection.decode import decode_head, yolo_heads
from mpnet.detection.images import read_image
from mpnet.detection.nms import NmsOptions, suppress
from mpnet.detection.preprocess import preprocess
from mpnet.engine.assign import PrecisionPlan, assign
from mpnet.engine.cost import layer_costs
from mpnet.engine.devices import open_kernels
from mpnet.engine.options import EngineOptions, resolve_options, without_statistics
from mpnet.engine.plan import Plan, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError, DataError
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.documents.typed import as_json
from mpnet.formats.files.cache import open_cache
from mpnet.formats.labels.class_names import class_names
from mpnet.formats.weights import open_weights
from mpnet.json_values import Json
from mpnet.kernels.environment import cpu_count
from mpnet.kernels.implementation import Kernels
from mpnet.messages import shown
from mpnet.model.network import NetworkSpec
from mpnet.model.plan_key import short_key
from mpnet.model.precision import Precision
from mpnet.model.task import CLASSIFICATION, DETECTION
from mpnet.tables import Chart, Table, Tabular, layer_table


class _PilImage(Protocol):
    """An image of PIL, as far as one is looked at."""

    def convert(self, mode: str, /) -> object:
        """Return the image in another mode, such as RGB."""
        ...


ImageLike: TypeAlias = str | Path | NDArray[np.uint8] | _PilImage
"""A file, RGB uint8 (h, w, 3), or an image of PIL."""


@dataclass(frozen=True)
class Box:
    """One object. category: class index; score: objectness x class probability; the rest in pixels of the image."""

    name: str
    category: int
    score: float
    x: float
    y: float
    width: float
    height: float

    def plain(self) -> dict[str, Json]:
        """Return the values as JSON documents hold them."""
        return {
            "name": self.name,
            "category": self.category,
            "score": self.score,
            "box": [self.x, self.y, self.width, self.height],
        }


class Boxes(list[Box], Tabular):
    """The objects of one image, best first; a list that notebooks show as a table."""

    @property
    def table(self) -> Table:
        """Return one row a box: name, category, score, x, y, width, height."""
        rows = [asdict(box) for box in self]
        return Table({field.name: [row[field.name] for row in rows] for field in fields(Box)}, chart=Chart("score", "name"))


@dataclass(frozen=True)
class Label:
    """One class of an image. category: class index; score: what the network's last layer gives it."""

    name: str
    category: int
    score: float

    def plain(self) -> dict[str, Json]:
        """Return the values as JSON documents hold them."""
        return {"name": self.name, "category": self.category, "score": self.score}


class Network:
    """A network with its weights and a precision per layer. Make one with `load_network`; it never changes.

    spec: the layers. names: one per class. plan: the steps of a forward pass.
    """

    def __init__(
        self,
        spec: NetworkSpec,
        names: tuple[str, ...],
        prepared: Prepared,
        options: EngineOptions,
        precisions: PrecisionPlan,
        threads: int,
    ) -> None:
        self.spec = spec
        self.names = names
        self.options = options
        self.threads = threads
        self.plan: Plan = build_plan(spec, precisions, options)
        self._prepared = prepared
        self._session = Session(prepared, self.plan, threads)

    def __repr__(self) -> str:
        height, width, channels = self.spec.in_shape
        return f"<Network {self.spec.source}: {width}x{height}x{channels}, precisions {short_key(self.precision)}>"

    @property
    def layers(self) -> Table:
        """Return one row a layer: what it is, its precision, and what it costs."""
        return layer_table([as_json(layer) for layer in layer_costs(self.plan)], str(self.spec.source))

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.layers.html()}"

    @property
    def precision(self) -> str:
        """Return the canonical text of the precisions: one character per layer with weights."""
        return self.plan.precision.key

    def with_precision(self, default: str | None = None, layers: Mapping[str | int, str | Precision] | None = None) -> Network:
        """Return the same network at other precisions; packed weights are shared.

        default: for layers whose cfg section declares none. layers: selector -> precision, over the cfg.
        Raises: ConfigError for a selector that chooses nothing, PrecisionError for an impossible precision.
        """
        precisions = assign(self.spec, default, layers)
        return Network(self.spec, self.names, self._prepared, self.options, precisions, self.threads)

    def forward(self, x: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Return the tensors that enter the heads, float32 (n, h, w, c) each, from float32 (n, height, width, channels).

        Raises: DataError for another shape or type, EngineError for values that are not finite.
        """
        if x.dtype != np.float32 or x.ndim != 4 or x.shape[1:] != self.spec.in_shape or len(x) == 0:
            raise DataError(
                f"an input of {self.spec.source} is float32 (n, {', '.join(map(str, self.spec.in_shape))}), "
                f"not {x.dtype} {x.shape}"
            )
        return [tensor.copy() for tensor in self._session.forward(np.ascontiguousarray(x))]

    @overload
    def detect(
        self,
        image: ImageLike,
        *,
        confidence: float = ...,
        nms: float = ...,
        nms_kind: str | None = ...,
        resize: str | None = ...,
    ) -> Boxes: ...

    @overload
    def detect(
        self,
        image: list[ImageLike] | tuple[ImageLike, ...],
        *,
        confidence: float = ...,
        nms: float = ...,
        nms_kind: str | None = ...,
        resize: str | None = ...,
    ) -> list[Boxes]: ...

    def detect(
        self,
        image: ImageLike | list[ImageLike] | tuple[ImageLike, ...],
        *,
        confidence: float = 0.25,
        nms: float = 0.45,
        nms_kind: str | None = None,
        resize: str | None = None,
    ) -> Boxes | list[Boxes]:
        """Detect the objects in an image (a file, RGB uint8 (h, w, 3), or one of PIL), best first.

        Of several images a list each is returned.


        resize: as `detection.resize`; None: as the cfg's [net] says.
        Raises: DataError for a broken image, ConfigError for options outside their range or a network without heads.
        """
        if self.spec.task is not DETECTION:
            raise ConfigError(f"{self.spec.source}: has no detection head such as [yolo], so it detects nothing")
        if isinstance(image, (list, tuple)):
            return [
                self.detect(single_image, confidence=confidence, nms=nms, nms_kind=nms_kind, resize=resize)
                for single_image in image
            ]
        pixels = _pixels(image)
        x, geometry = preprocess(pixels, self.spec.width, self.spec.height, resize or self.spec.resize)
        candidates = [
            decode_head(tensor, head, [geometry], confidence)
            for head, tensor in zip(yolo_heads(self.spec), self._session.forward(x), strict=True)
        ]
        last_head = self.spec.yolos[-1]
        sizes = np.array([[pixels.shape[1], pixels.shape[0]]], dtype=np.float32)
        detections = suppress(candidates, sizes, NmsOptions(nms_kind or last_head.nms_kind, nms, last_head.beta_nms)).clipped(
            sizes
        )
        boxes = (
            Box(self.names[category], category, score, *box)
            for category, score, box in zip(
                detections.category.tolist(), detections.score.tolist(), detections.box.tolist(), strict=True
            )
        )
        return Boxes(sorted(boxes, key=lambda box: -box.score))

    def classify(self, image: ImageLike, *, resize: str | None = None) -> list[Label]:
        """Return the best five classes of an image (a file, RGB uint8 (h, w, 3), or one of PIL), best first.

        Raises: DataError for a broken image, ConfigError for an unknown resize or a network that is no classifier.
        """
        if self.spec.task is not CLASSIFICATION:
            raise ConfigError(f"{self.spec.source}: does not end in one value per class, so it classifies nothing")
        pixels = _pixels(image)
        x, _ = preprocess(pixels, self.spec.width, self.spec.height, resize or self.spec.resize)
        [scores] = self._session.forward(x)
        best = best_classes(class_scores(scores))
        return [
            Label(self.names[category], category, score)
            for category, score in zip(best.category[0].tolist(), best.score[0].tolist(), strict=True)
        ]


def _pixels(image: object) -> NDArray[np.uint8]:
    """Return uint8 (h, w, 3), RGB. Raises: DataError for what is no image, or cannot be read."""
    if isinstance(image, (str, Path)):
        return read_image(image)
    if hasattr(image, "convert"):  # of PIL, which need not be installed
        image = np.asarray(image.convert("RGB"))
    if not isinstance(image, np.ndarray):
        raise DataError(f"{shown(image)} is no image; give a path, RGB uint8 (h, w, 3), an image of PIL, or a list of these")
    return image


def load_network(
    cfg: str | Path,
    weights: str | Path,
    names: str | Path | None = None,
    *,
    default: str | None = None,
    layers: Mapping[str | int, str | Precision] | None = None,
    batch_norm: str = "auto",
    dialect: str = "auto",
    threads: int | None = None,
    isa: str | None = None,
    device: str | None = None,
    cache: bool = True,
) -> Network:
    """Read a network and make it ready to run.

    names:   a file with one class name a line; None: class-0, class-1, ...
    default, layers: precisions, as in `Network.with_precision`.
    dialect: whose program's ways to follow: auto, darknet, alexeyab. batch_norm: its formula; auto: the dialect's.
    threads: None: all cores. isa: a kernel table as `mpnet info` lists them; None: the best.
    device:  auto, cpu, opencl or opencl:N, cuda or cuda:N (docs/gpu.md); None: auto.
    Weights of fewer than eight bits are rounded to nearest: there are no calibration images here to learn from.
    cache:   keep prepared weights for the next process, and use what was kept (docs/engine.md).
    Raises: FormatError, PrecisionError, ConfigError, KernelError; each message is one line with place and remedy.
    """
    spec = read_cfg(cfg, dialect)
    options = without_statistics(resolve_options(spec, batch_norm=batch_norm))
    return prepare_network(
        spec,
        weights,
        class_names(spec, names),
        options,
        assign(spec, default, layers),
        threads,
        open_kernels(isa, device),
        cache,
    )


def prepare_network(
    spec: NetworkSpec,
    weights: str | Path,
    names: tuple[str, ...],
    options: EngineOptions,
    precisions: PrecisionPlan,
    threads: int | None,
    kernels: Kernels,
    cache: bool,
) -> Network:
    """Read and prepare a network's weights; arguments as of `load_network`, with options and precisions resolved."""
    file_cache = open_cache() if cache else None
    constants = open_weights(weights, spec, file_cache)
    prepared = Prepared.under(options, spec, constants, kernels, cache=file_cache)
    return Network(spec, names, prepared, options, precisions, threads or cpu_count())
