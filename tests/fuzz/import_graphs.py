# SPDX-License-Identifier: MIT
"""Random graphs with branches and attention, imported, beside ONNX Runtime.

python -m tests.fuzz.import_graphs GRAPHS [SEED] [--kept FOLDER]: every graph is made of forms that docs/import.md promises, so
each must be imported, and its heads must be those of ONNX Runtime up to the order of sums. What is refused or differs is kept
in FOLDER. Graph n of seed s is build_graph(s + n), whatever came before it.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import numpy as np
import onnx

from mpnet.errors import MpnetError
from mpnet.importing import import_model
from tests.importing.conftest import heads_of, reference_heads
from tests.importing.graphs import Builder

SIDE = 16
BOUND = 5e-6
"""Of a head's largest value. tests/importing holds single forms to 2e-6, which is the order of sums; here up to ten stand one
behind the other, and each hands on what came before."""
ACTIVATIONS = ("", "Relu", "silu", "leaky", "relu6", "Sigmoid", "Tanh", "HardSwish", "Elu")


@dataclass
class Chain:
    """A graph that grows. sides: pixels along an axis, by tensor; x: where it grows."""

    b: Builder
    x: str = "images"
    sides: dict[str, int] = field(default_factory=lambda: {"images": SIDE})

    @property
    def channels(self) -> int:
        """Return the channels of x."""
        return self.b.channels[self.x]

    @property
    def side(self) -> int:
        """Return the pixels of x along an axis."""
        return self.sides[self.x]

    def choose(self, *values: Any) -> Any:
        """Return one of the values."""
        return values[int(self.b.random.integers(len(values)))]

    def grow(self, x: str, channels: int, side: int) -> None:
        """Go on from a tensor of that shape."""
        self.x = x
        self.b.channels[x] = channels
        self.sides[x] = side

    def transpose(self, x: str, *order: int) -> str:
        """Return x with its axes in another order."""
        return str(self.b.node("Transpose", [x], perm=order))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """Return rows of channels times a matrix."""
        weights = self.b.constant(self.b.random.normal(0, inputs**-0.5, (inputs, outputs)))
        bias = self.b.constant(self.b.random.normal(0, 0.3, outputs))
        return str(self.b.node("Add", [self.b.node("MatMul", [x, weights]), bias]))

    def norm(self, x: str, channels: int) -> str:
        """Return rows of channels, normalised."""
        scale, shift = self.b.random.uniform(0.5, 1.5, channels), self.b.random.normal(0, 0.3, channels)
        return str(
            self.b.node("LayerNormalization", [x, self.b.constant(scale), self.b.constant(shift)], axis=-1, epsilon=1e-5)
        )


def _convolution(chain: Chain) -> None:
    size, stride = chain.choose(1, 3, 3, 5), chain.choose(1, 1, 2) if chain.side > 4 else 1
    filters = chain.choose(8, 12, 16, 24)
    groups = chain.choose(1, 1, 1, 2, 4)
    if filters % groups or chain.channels % groups:
        groups = 1
    bn = bool(chain.choose(False, True))
    y = chain.b.conv(chain.x, filters, size, stride, groups, chain.choose(*ACTIVATIONS), bn)
    chain.grow(y, filters, -(-chain.side // stride))


def _depthwise(chain: Chain) -> None:
    channels = chain.channels
    y = chain.b.conv(chain.x, channels, chain.choose(3, 5), groups=channels, act=chain.choose(*ACTIVATIONS))
    chain.grow(chain.b.conv(y, channels), channels, chain.side)


def _pool(chain: Chain) -> None:
    if chain.side < 8:
        return
    stride = chain.choose(1, 2)
    if chain.choose(False, True):
        y = chain.b.pool(chain.x, 3, stride, 1)
    else:
        inside = {} if chain.choose(False, True) else {"count_include_pad": 1}
        y = chain.b.node("AveragePool", [chain.x], kernel_shape=[3, 3], strides=[stride] * 2, pads=[1] * 4, **inside)
    chain.grow(y, chain.channels, -(-chain.side // stride))


def _upsample(chain: Chain) -> None:
    if chain.side <= 8:
        if chain.choose(False, True):
            y = chain.b.upsample(chain.x)
        else:
            y = chain.b.node("Resize", [chain.x, "", chain.b.constant([1, 1, 2, 2])], mode="linear")
        chain.grow(y, chain.channels, 2 * chain.side)


def _residual(chain: Chain) -> None:
    """Add what a few convolutions make of a tensor to it, or take the difference."""
    y, channels = chain.x, chain.channels
    for _ in range(chain.choose(1, 2)):
        y = chain.b.conv(y, channels, chain.choose(1, 3), act=chain.choose(*ACTIVATIONS), bn=bool(chain.choose(False, True)))
    pair = chain.choose([chain.x, y], [y, chain.x])
    chain.grow(
        chain.b.act(chain.b.node(chain.choose("Add", "Add", "Sub"), pair), chain.choose("", "Relu")), channels, chain.side
    )


def _branches(chain: Chain) -> None:
    """Join two to four branches of one tensor, the tensor itself among them or not."""
    tensors = [chain.x] if chain.choose(False, True) else []
    for _ in range(chain.choose(2, 3)):
        y = chain.b.conv(chain.x, chain.choose(4, 8), chain.choose(1, 3, 5), act=chain.choose(*ACTIVATIONS))
        if chain.choose(False, True):
            y = chain.b.pool(y, 3, 1, 1)
        tensors.append(y)
    order = chain.b.random.permutation(len(tensors))
    y = chain.b.concat([tensors[i] for i in order])
    chain.grow(y, chain.b.channels[y], chain.side)


def _split(chain: Chain) -> None:
    """Cut the channels, convolve some parts, and join them in another order, or multiply two."""
    channels = chain.channels
    parts = [channels // 4, channels // 4, channels - 2 * (channels // 4)]
    pieces = chain.b.node("Split", [chain.x, chain.b.constant(parts, np.int64)], 1, 3, axis=1)
    for piece, count in zip(pieces, parts, strict=True):
        chain.b.channels[piece] = count
    if chain.choose(False, True):
        gated = chain.b.node("Mul", [pieces[0], chain.b.node("Sigmoid", [pieces[1]])])
        chain.grow(chain.b.concat([gated, pieces[2]]), channels - parts[0], chain.side)
        return
    pieces[1] = chain.b.conv(pieces[1], parts[1], 3, act=chain.choose(*ACTIVATIONS))
    order = chain.choose([0, 1, 2], [2, 0, 1], [1, 2, 0])
    chain.grow(chain.b.concat([pieces[i] for i in order]), channels, chain.side)


def _gate(chain: Chain) -> None:
    """Weigh channels by what the whole image says of them, or pixels by a convolution."""
    if chain.choose(False, True):
        y = chain.b.node("GlobalAveragePool", [chain.x])
        y = chain.b.conv(chain.b.conv(y, 4, act="Relu"), chain.channels)
    else:
        y = chain.b.conv(chain.x, 1)
    gate = chain.b.node(chain.choose("Sigmoid", "HardSigmoid"), [y])
    chain.grow(chain.b.node("Mul", chain.choose([chain.x, gate], [gate, chain.x])), chain.channels, chain.side)


def _shuffle(chain: Chain) -> None:
    channels, side, groups = chain.channels, chain.side, chain.choose(2, 4)
    if channels % groups:
        return
    y = chain.b.reshape(chain.x, [1, groups, channels // groups, side, side])
    y = chain.b.reshape(chain.transpose(y, 0, 2, 1, 3, 4), [1, channels, side, side])
    chain.grow(y, channels, side)


def _channel_factors(chain: Chain) -> None:
    """Multiply and add constants per channel where there may be no weights to fold them into."""
    factors, shifts = (chain.b.constant(v.reshape(1, -1, 1, 1)) for v in chain.b.random.uniform(0.5, 1.5, (2, chain.channels)))
    y = chain.b.node("Add", [chain.b.node("Mul", [chain.x, factors]), shifts])
    chain.grow(chain.b.act(y, chain.choose("", "Relu", "silu")), chain.channels, chain.side)


def _attention_by_heads(chain: Chain) -> None:
    """Add attention whose queries, keys and values come of one convolution, each head's side by side."""
    if chain.side > 8:
        return
    heads, key, value = chain.choose(1, 2, 3), chain.choose(4, 8, 12), chain.choose(4, 8)
    pixels, width, side = chain.side**2, heads * value, chain.side
    b = chain.b
    joined = b.reshape(b.conv(chain.x, heads * (2 * key + value)), [1, heads, 2 * key + value, pixels])
    q, k, v = b.node("Split", [joined, b.constant([key, key, value], np.int64)], 1, 3, axis=2)
    scale = b.constant(key**-0.5)
    if chain.choose(False, True):
        scores = b.node("MatMul", [chain.transpose(b.node("Mul", [q, scale]), 0, 1, 3, 2), k])
    else:
        scores = b.node("Mul", [b.node("MatMul", [chain.transpose(q, 0, 1, 3, 2), k]), scale])
    shares = chain.transpose(b.node("Softmax", [scores], axis=-1), 0, 1, 3, 2)
    mean, values = (b.reshape(y, [1, width, side, side]) for y in (b.node("MatMul", [v, shares]), v))
    b.channels |= {mean: width, values: width}
    if chain.choose(False, True):
        mean = b.node("Add", [mean, b.conv(values, width, 3, groups=width)], width)
    y = b.conv(mean, chain.channels)
    chain.grow(b.node("Add", [chain.x, y]), chain.channels, side)


def _attention_by_areas(chain: Chain) -> None:
    """Add attention within parts of the image."""
    if chain.side > 8:
        return
    heads, value, areas, side = chain.choose(1, 2), chain.choose(4, 8), chain.choose(2, 4), chain.side
    pixels, channels, b = side * side // areas, 3 * value, chain.b
    rows = b.reshape(b.conv(chain.x, heads * channels), [1, heads * channels, side * side])
    rows = b.reshape(chain.transpose(rows, 0, 2, 1), [areas, pixels, heads * channels])
    parts = chain.transpose(b.reshape(rows, [areas, pixels, heads, channels]), 0, 2, 3, 1)
    q, k, v = b.node("Split", [parts, b.constant([value] * 3, np.int64)], 1, 3, axis=2)
    scores = b.node("MatMul", [chain.transpose(b.node("Mul", [q, b.constant(value**-0.5)]), 0, 1, 3, 2), k])
    shares = chain.transpose(b.node("Softmax", [scores], axis=-1), 0, 1, 3, 2)
    mean = chain.transpose(b.node("MatMul", [v, shares]), 0, 3, 1, 2)
    mean = b.reshape(b.reshape(mean, [1, side * side, heads * value]), [1, side, side, heads * value])
    y = chain.transpose(mean, 0, 3, 1, 2)
    b.channels[y] = heads * value
    chain.grow(b.node("Add", [b.conv(y, chain.channels), chain.x]), chain.channels, side)


def _transformer(chain: Chain) -> None:
    """Add a block of a transformer: rows of channels, attention, a network of each row."""
    heads = chain.choose(1, 2, 4)
    channels, side, b = chain.channels, chain.side, chain.b
    if side > 8:
        return
    if channels**2 <= 256 or channels % heads:  # products of fewer weights are taken for box decoding
        channels = 24
        chain.grow(b.conv(chain.x, channels, act=chain.choose(*ACTIVATIONS)), channels, side)
    pixels, width = side * side, channels // heads
    rows = chain.transpose(b.reshape(chain.x, [1, channels, pixels]), 0, 2, 1)
    joined = b.reshape(chain.linear(chain.norm(rows, channels), channels, 3 * channels), [1, pixels, 3, heads, width])
    parts = b.node("Split", [chain.transpose(joined, 2, 0, 3, 1, 4), b.constant([1, 1, 1], np.int64)], 1, 3, axis=0)
    q, k, v = (b.node("Squeeze", [matrix, b.constant([0], np.int64)]) for matrix in parts)
    scores = b.node("MatMul", [b.node("Mul", [q, b.constant(width**-0.5)]), chain.transpose(k, 0, 1, 3, 2)])
    mean = chain.transpose(b.node("MatMul", [b.node("Softmax", [scores], axis=-1), v]), 0, 2, 1, 3)
    rows = b.node("Add", [rows, chain.linear(b.reshape(mean, [1, pixels, channels]), channels, channels)])
    hidden = chain.linear(chain.norm(rows, channels), channels, 2 * channels)
    hidden = b.act(hidden, chain.choose("Relu", "silu"))
    rows = b.node("Add", [rows, chain.linear(hidden, 2 * channels, channels)])
    y = b.reshape(chain.transpose(rows, 0, 2, 1), [1, channels, side, side])
    chain.grow(y, channels, side)


def _rows(chain: Chain) -> None:
    """Add ConvNeXt's block."""
    channels, b = chain.channels, chain.b
    y = chain.transpose(b.conv(chain.x, channels, 5, groups=channels), 0, 2, 3, 1)
    y = b.act(chain.linear(chain.norm(y, channels), channels, 2 * channels), chain.choose("Relu", "silu"))
    y = chain.transpose(chain.linear(y, 2 * channels, channels), 0, 3, 1, 2)
    chain.grow(b.node("Add", [chain.x, y]), channels, chain.side)


FORMS: tuple[Callable[[Chain], None], ...] = (
    _convolution,
    _convolution,
    _depthwise,
    _pool,
    _upsample,
    _residual,
    _branches,
    _split,
    _gate,
    _shuffle,
    _channel_factors,
    _attention_by_heads,
    _attention_by_areas,
    _transformer,
    _rows,
)


def build_graph(seed: int) -> tuple[Any, list[str]]:
    """Build a graph of 3 to 10 forms with one to three heads. Result: the model, the forms in their order."""
    chain = Chain(Builder(SIDE, seed))
    chain.grow(chain.b.conv("images", 16, 3, chain.choose(1, 2, 2), act="Relu"), 16, 0)
    chain.sides[chain.x] = SIDE // _stride_of(chain.b.nodes[0])
    heads, forms = [], []
    for _ in range(int(chain.b.random.integers(3, 11))):
        form = FORMS[int(chain.b.random.integers(len(FORMS)))]
        before = chain.x
        form(chain)
        if chain.x != before:
            forms.append(form.__name__.strip("_"))
        if chain.channels > 48:
            chain.grow(chain.b.conv(chain.x, 24, act="Relu"), 24, chain.side)
        if len(heads) < 2 and chain.choose(*[False] * 5, True):
            heads.append(chain.b.conv(chain.x, chain.choose(3, 6, 9)))
    heads.append(chain.b.conv(chain.x, chain.choose(3, 6, 9)))
    return chain.b.model(heads), forms


def _stride_of(node: Any) -> int:
    return int(next(attribute.ints[0] for attribute in node.attribute if attribute.name == "strides"))


def compare(model: Any, path: Path) -> float:
    """Return the largest difference of the heads from ONNX Runtime's, as a share of the head's largest value.

    Raises: MpnetError where the import refuses the model; ValueError where heads are missing or have other shapes.
    """
    onnx.save(model, path)
    imported = import_model(path)
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    heads, references = heads_of(imported, x), reference_heads(path, imported, x)
    if len(heads) != len(model.graph.output):
        raise ValueError(f"{len(heads)} heads of {len(model.graph.output)}")
    worst = 0.0
    for head, reference in zip(heads, references, strict=True):
        if head.shape != reference.shape:
            raise ValueError(f"a head of shape {head.shape}, not {reference.shape}")
        worst = max(worst, float(np.abs(head - reference).max() / max(np.abs(reference).max(), 1e-30)))
    return worst


def hunt(graphs: int, seed: int = 0, kept_folder: Path | None = None) -> int:
    """Build, import and compare. Result: in how many graphs something was wrong; each is printed."""
    wrong, worst, slowest = 0, 0.0, 0.0
    used: dict[str, int] = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as space:
        path = Path(space) / "graph.onnx"
        for number in range(seed, seed + graphs):
            model, forms = build_graph(number)
            start = time.process_time()
            try:
                difference = compare(model, path)
                worst = max(worst, difference)
                problem = "" if difference <= BOUND else f"differs by {difference:.1e} of the largest value"
            except (MpnetError, ValueError) as error:
                problem = str(error)
            slowest = max(slowest, time.process_time() - start)
            for form in forms:
                used[form] = used.get(form, 0) + 1
            if problem:
                wrong += 1
                print(f"--- graph {number} ({', '.join(forms)}): {problem}", flush=True)
                if kept_folder is not None:
                    kept_folder.mkdir(parents=True, exist_ok=True)
                    onnx.save(model, kept_folder / f"graph-{number}.onnx")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(", ".join(f"{name} {count}" for name, count in sorted(used.items())))
    print(
        f"graphs: {graphs} files from seed {seed}, {wrong} wrong in {wrong} places, slowest {slowest:.2f} s, "
        f"at most {peak_mb:.0f} MB, largest difference {worst:.1e}",
        flush=True,
    )
    return wrong


def main(arguments: list[str]) -> int:
    kept_folder = Path(arguments[arguments.index("--kept") + 1]) if "--kept" in arguments else None
    plain = arguments[: arguments.index("--kept")] if kept_folder else arguments
    return min(1, hunt(int(plain[0]), int(plain[1]) if len(plain) > 1 else 0, kept_folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
