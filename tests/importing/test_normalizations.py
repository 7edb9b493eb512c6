# SPDX-License-Identifier: MIT
"""Global response normalisation, in the forms in which programs write it, and roots give what ONNX Runtime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from mpnet.errors import FormatError
from mpnet.importing import Imported
from tests.importing.conftest import heads_of, reference_heads
from tests.importing.graphs import Builder

CHANNELS, EPSILON = 24, 1e-6


def _find_norm(b: Builder, x: str, axes: list[int], form: str) -> str:
    if form == "reduction":
        return str(b.node("ReduceL2", [x], axes=axes, keepdims=1))
    square = {
        "product": lambda: b.node("Mul", [x, x]),
        "power": lambda: b.node("Pow", [x, b.constant(2.0)]),
        "sum of squares": lambda: x,
    }[form]()
    if form == "sum of squares":
        total = b.node("ReduceSumSquare", [square], axes=axes, keepdims=1)
    else:
        total = b.node("ReduceSum", [square, b.constant(axes, np.int64)], keepdims=1)
    return str(b.node("Pow", [total, b.constant(0.5)]) if form == "power" else b.node("Sqrt", [total]))


def normalize(b: Builder, x: str, axes: list[int], form: str = "reduction", epsilon: float = EPSILON) -> str:
    """Build timm's order of ConvNeXt V2's normalisation of x over the axes of pixels."""
    channel_axis = 1 if axes == [2, 3] else 3
    shape = (CHANNELS, 1, 1) if channel_axis == 1 else (CHANNELS,)
    norm = _find_norm(b, x, axes, form)
    mean = b.node("ReduceMean", [norm], axes=[channel_axis], keepdims=1)
    share = b.node("Div", [norm, b.node("Add", [mean, b.constant(epsilon)])])
    scaled = b.node("Mul", [b.constant(b.random.normal(0, 0.5, shape)), b.node("Mul", [x, share])])
    shifted = b.node("Add", [b.constant(b.random.normal(0, 0.3, shape)), scaled])
    return str(b.node("Add", [x, shifted]))


def build_model(write: Callable[[Builder, str], str], behind: bool = True) -> Any:
    b = Builder(8)
    x = write(b, b.conv("images", CHANNELS, 3, 2, act="Relu"))
    b.channels[x] = CHANNELS
    return b.model([b.conv(x, 8) if behind else x])


def _by_rows(b: Builder, x: str) -> str:
    rows = b.node("Transpose", [x], perm=[0, 2, 3, 1])
    rows = b.node("MatMul", [rows, b.constant(b.random.normal(0, CHANNELS**-0.5, (CHANNELS, CHANNELS)))])
    return str(b.node("Transpose", [normalize(b, rows, [1, 2])], perm=[0, 3, 1, 2]))


FORMS: dict[str, Callable[[Builder, str], str]] = {
    **{
        form: lambda b, x, form=form: normalize(b, x, [2, 3], form)  # type: ignore[misc]
        for form in ("reduction", "product", "power", "sum of squares")
    },
    "rows": _by_rows,
}


def check_values(path: Path, imported: Imported) -> None:
    x = np.random.default_rng(2).random((1, *imported.network.in_shape), np.float32)
    for head, reference in zip(heads_of(imported, x), reference_heads(path, imported, x), strict=True):
        # Four layers of sums of at most 27 products in other orders.
        assert np.abs(head - reference).max() <= 2e-6 * np.abs(reference).max()
    assert np.isfinite(heads_of(imported, x, "int8")[0]).all()


@pytest.mark.parametrize("form", list(FORMS))
def test_response_norms_are_onnx_runtimes(form: str, importing: Callable[..., tuple[Path, Imported]]) -> None:
    path, imported = importing(build_model(FORMS[form]))
    check_values(path, imported)
    words = [getattr(layer, "activation", "") for layer in imported.network.layers]
    assert words.count("sqrt") == words.count("normalize_channels") == 1
    # What is added behind the product is in the bias of the weights behind it.
    assert [layer.kind for layer in imported.network.layers[-3:]] == ["scale_channels", "convolutional", "yolo"]


def test_its_shift_stays_a_layer_where_no_weights_follow(importing: Callable[..., tuple[Path, Imported]]) -> None:
    check_values(*importing(build_model(FORMS["reduction"], behind=False)))


def test_an_epsilon_that_no_layer_has_is_refused(importing: Callable[..., tuple[Path, Imported]]) -> None:
    with pytest.raises(FormatError, match="epsilon is too far from 1e-6"):
        importing(build_model(lambda b, x: normalize(b, x, [2, 3], epsilon=1e-20)))


def test_roots_and_squares_are_layers(importing: Callable[..., tuple[Path, Imported]]) -> None:
    def write(b: Builder, x: str) -> str:
        return str(b.node("Sqrt", [b.node("Relu", [b.node("Pow", [b.conv(x, CHANNELS), b.constant(2.0)])])]))

    path, imported = importing(build_model(write))
    check_values(path, imported)
    # Of what is below 0 the root is 0: no layer of its own sees to that.
    assert [getattr(layer, "activation", "") for layer in imported.network.layers].count("relu") == 1
