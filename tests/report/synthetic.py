# SPDX-License-Identifier: MIT
"""Made-up but plausible report data: all 2 ** 11 assignments of a network with eleven convolutions."""

from __future__ import annotations

import itertools

import cv2
import numpy as np

from mpnet.evaluation.compare import Interval
from mpnet.report.data.differences import ClassRow, Confusion, ImageTriple, ObjectChange
from mpnet.report.data.report_data import CfgTemplate, Layer, LayerError, LayerPair, Pick, ReportData, Status
from mpnet.resolve.configurations import Configurations
from mpnet.sweep.choose.picks import PICK_RULES

MACS = (
    22_118_400,
    29_491_200,
    29_491_200,
    29_491_200,
    29_491_200,
    29_491_200,
    3_276_800,
    29_491_200,
    3_276_800,
    1_638_400,
    26_214_400,
)
PARAMETERS = (448, 4_640, 18_496, 36_928, 73_856, 147_584, 16_512, 147_584, 25_155, 8_256, 50_310)


def layers(names: tuple[str, ...] = ()) -> tuple[Layer, ...]:
    """Return eleven convolutions with pooling between them."""
    rows = []
    for position, (macs, parameters) in enumerate(zip(MACS, PARAMETERS, strict=True)):
        name = names[position] if position < len(names) else f"conv-{position + 1}"
        rows.append(
            Layer(
                2 * position,
                "convolution",
                name,
                position,
                (320 >> position // 2, 320 >> position // 2, 64),
                macs,
                parameters,
                (f"conv-{position + 1}", "3x3"),
            )
        )
        rows.append(
            Layer(
                2 * position + 1,
                "maxpool",
                f"pool-{position + 1}",
                None,
                (160 >> position // 2, 160 >> position // 2, 64),
                0,
                0,
            )
        )
    return tuple(rows)


def front_of(accuracy: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Return rows that no other row beats, by comparing all with all in order of cost."""
    order = np.lexsort((-accuracy, cost))
    best, is_on_front = -np.inf, np.zeros(len(cost), dtype=bool)
    for row in order:
        if accuracy[row] > best:
            best, is_on_front[row] = accuracy[row], True
    return is_on_front


def configurations(seed: int = 7, codes: str = "fq") -> Configurations:
    """Return every assignment of `codes` to the eleven layers, harm per layer drawn at random with noise on AP."""
    random = np.random.default_rng(seed)
    keys = tuple("".join(code) for code in itertools.product(codes, repeat=len(MACS)))
    low = np.array([[c != "f" for c in key] for key in keys])
    bits = np.array([[{"f": 32, "h": 16, "q": 8}[c] for c in key] for key in keys])
    harm = np.array([1.6, 0.35, 0.25, 0.3, 0.2, 0.3, 0.15, 0.25, 1.1, 0.2, 0.9])
    agreement = 100 - low @ harm - 0.1 * random.standard_normal(len(keys)) ** 2
    agreement[0] = 100.0
    ap = 44.58 + 0.28 * random.standard_normal(len(keys)) - 0.02 * (100 - agreement)
    ap[0] = 44.58
    weight_bytes = (bits / 8) @ np.array(PARAMETERS, dtype=float)
    operations = (bits.astype(float) ** 2) @ np.array(MACS, dtype=float)
    columns = {
        "AP": ap,
        "AP50": ap + 39.7,
        "AR100": ap + 7.9,
        "agreement_AP": agreement,
        "head_sqnr_db": np.where(agreement >= 100, np.inf, 60 - 5 * (100 - agreement)),
        "weight_bytes": weight_bytes,
        "peak_activation_bytes": 3.3e6 + 1e5 * bits[:, 0],
        "bit_operations": operations,
        "latency_ms": 2.0 + operations / 4e10,
    }
    is_on_front = front_of(agreement, operations)
    row = int(np.flatnonzero(is_on_front)[np.argsort(operations[is_on_front])][np.count_nonzero(is_on_front) // 2])
    return Configurations(keys, columns, is_on_front, "agreement_AP", "bit_operations", baseline=0, chosen=row)


def jpeg(seed: int, width: int = 320, height: int = 240) -> bytes:
    """Return an image of coloured noise in large blocks."""
    random = np.random.default_rng(seed)
    thumbnail = random.integers(30, 220, (6, 8, 3), dtype=np.uint8)
    image = cv2.resize(thumbnail, (width, height), interpolation=cv2.INTER_CUBIC)
    cv2.rectangle(image, (width // 3, height // 3), (2 * width // 3, 2 * height // 3), (60, 220, 90), 2)
    return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes()


def cfg(key_length: int = len(MACS)) -> CfgTemplate:
    """Return a network file with one section per layer, ready to be filled."""
    words = {"f": "fp32=1\nfp16=0\nint8=0\n", "h": "fp32=0\nfp16=1\nint8=0\n", "q": "fp32=0\nfp16=0\nint8=1\n"}
    pieces: list[tuple[object, int | None]] = [("[net]\nwidth=320\nheight=320\n# kept </script> comment\n", None)]
    for position in range(key_length):
        pieces.append(("\n[convolutional]\nfilters=16\n", None))
        pieces.append((words, position))
    return CfgTemplate("tiny.cfg", tuple(pieces))  # type: ignore[arg-type]


def report_data(
    class_names: tuple[str, ...] = ("circle", "square", "star", "arrow"),
    layer_names: tuple[str, ...] = (),
    state: str = "finished",
    title: str = "aix-exhaustive",
    image_name: str = "close_10000.jpg",
) -> ReportData:
    """Return everything that a page can show."""
    random = np.random.default_rng(3)
    table = configurations()
    net = layers(layer_names)
    key = table.keys[table.chosen or 0]
    intervals = {}
    for row in np.flatnonzero(table.front):
        row_intervals = {}
        for name in ("AP", "agreement_AP"):
            difference = table.value(int(row), name) - table.value(0, name)
            row_intervals[name] = Interval(difference, difference - 0.4, min(difference + 0.38, 0.0 if name != "AP" else 99.0))
        intervals[int(row)] = row_intervals
    classes = tuple(
        ClassRow(
            name,
            int(random.integers(3, 60)),
            {"AP": 40.0 + i, "AP50": 80.0 + i},
            {"AP": 40.0 + i + shift, "AP50": 80.0 + i + shift},
            Interval(shift, shift - 1.1, shift + 1.0),
        )
        for i, (name, shift) in enumerate(zip(class_names, random.normal(0, 1.2, len(class_names)), strict=True))
    )
    names = {"f": "fp32", "h": "fp16", "q": "int8"}
    weighted = [layer for layer in net if layer.position is not None]
    errors = tuple(
        LayerError(
            layer.index,
            layer.name,
            names[key[layer.position or 0]],
            60 - 2.5 * i,
            65 - 2 * i,
            1 - 1e-5 * (i + 1),
            0.289 + 0.02 * i,
            0.0002 * i,
            -1.0 - i,
            4.0 + i,
            tuple(int(v) for v in 1e5 * np.exp(-(np.linspace(-1.5, 4, 48) ** 2))),
            (-1.0 - i, 4.0 + i),
            (-1.0 - i, 3.5 + i),
            1 / 11,
        )
        for i, layer in enumerate(weighted)
    )
    costs = tuple(
        LayerPair(
            layer.index,
            layer.name,
            layer.macs / 3e7,
            layer.macs / (7e7 if key[i] == "q" else 3e7),
            4.0 * layer.parameters,
            (1.0 if key[i] == "q" else 4.0) * layer.parameters,
        )
        for i, layer in enumerate(weighted)
    )
    changes = tuple(
        ObjectChange(
            "lost" if i % 3 else "gained",
            image_name,
            class_names[i % len(class_names)],
            0.3 + 0.05 * i,
            0.7,
            (10, 20, 60, 80),
            ("small", "large")[i % 2],
            jpeg=jpeg(i, 160, 120),
        )
        for i in range(8)
    )
    sides = len(class_names) + 1
    counts = random.integers(0, 3, (2, sides, sides)) + 5 * np.eye(sides, dtype=np.int64)
    confusion = Confusion((*class_names, "nothing"), counts[0], counts[1])
    cheapest_first = sorted(np.flatnonzero(table.front).tolist(), key=lambda row: table.columns["bit_operations"][row])
    picks = tuple(
        Pick(
            name,
            rule,
            table.keys[row],
            row,
            {"all 115 images": Interval(-0.2, -0.7, 0.3)},
            {"bit_operations": 81.0, "weight_bytes": 62.5},
        )
        for (name, rule), row in zip(
            PICK_RULES.items(), (table.chosen or 0, cheapest_first[len(cheapest_first) // 3], cheapest_first[0]), strict=True
        )
    )
    images = tuple(
        ImageTriple(image_name, "agreement 81.2; 2 objects lost", jpeg(20 + i), jpeg(30 + i), jpeg(40 + i)) for i in range(3)
    )
    total = len(table)
    status = Status(state, total if state == "finished" else 1200, total)
    return ReportData(
        title=title,
        kind="sweep",
        source="sweep.sqlite",
        created="",
        status=status,
        layers=net,
        configurations=table,
        intervals=intervals,
        classes=classes,
        changes=changes,
        errors=errors,
        costs=costs,
        worst=images,
        protocol={
            "dataset": "aix2022",
            "images": 115,
            "resize": "stretch",
            "confidence": 0.005,
            "nms": 0.45,
            "quantization": {"weights": "per_channel", "activations": "dynamic"},
        },
        digests={"cfg": "ab" * 32, "weights": "cd" * 32, "data": "ef" * 32},
        versions={"mpnet": "0.1.0"},
        latency={"isa": "avx2", "threads": 2},
        cfg=cfg(),
        intervals_by="2,000 paired bootstrap draws over images",
        objectives=("agreement_AP", "bit_operations"),
        picks=picks,
        confusion=confusion,
    )
