# SPDX-License-Identifier: MIT
"""The C core gives the bits of the NumPy path and of TensorFlow's formulas."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.errors import PrecisionError
from mpnet.kernels.codes import PARAMS
from mpnet.model.quantization import ACTIVATION_MODES, MODES, QUANTIZE_MODES, SCHEME_ROUNDINGS
from mpnet.quantization import native, scheme, tensorflow
from mpnet.quantization.scheme import ActivationScheme, QuantParams

SCHEMES = [
    *(
        ActivationScheme(m.name, r, narrow)
        for m in MODES.values()
        for r in m.roundings
        for narrow in (False, True)
        if m.narrows or not narrow
    ),
    *(ActivationScheme(m, ensure_minimum_range=0.0) for m in QUANTIZE_MODES),
    *(ActivationScheme(m, r, bits=16) for m in ("symmetric", "power_of_two") for r in MODES[m].roundings),
]


def ranges(seed: int, count: int) -> np.ndarray:
    """Return ordinary, one-sided, tiny and huge ranges."""
    print("seed", seed)
    rng = np.random.default_rng(seed)
    pairs = np.sort(10.0 ** rng.uniform(-4, 4, (count, 1)) * rng.uniform(-1, 1, (count, 2)), axis=1)
    pairs[: count // 8] = np.sort(10.0 ** rng.uniform(-34, 36, (count // 8, 1)) * rng.uniform(-1, 1, (count // 8, 2)))
    pairs[-8:] = [(0, 1), (-1, 0), (-128, 127), (-127 / 256, 127 / 256), (-0.61, 5.9), (3, 3), (-3, -3), (0, 255)]
    return pairs.astype(np.float32)


def params_array(params: list[QuantParams]) -> np.ndarray:
    """Return QuantParams, one per image, as an array of PARAMS."""
    words = [(ACTIVATION_MODES.index(p.mode), SCHEME_ROUNDINGS.index(p.rounding)) for p in params]
    return np.array(
        [
            (*word, p.zero_point, p.low, p.high, p.scale, p.inv_scale, p.offset, p.range_min, p.range_max)
            for word, p in zip(words, params, strict=True)
        ],
        PARAMS,
    )


def activations(params: np.ndarray, seed: int, size: int) -> np.ndarray:
    """Return ties and their neighbours, values inside and outside of each range, denormals and zeros."""
    print("seed", seed)
    rng = np.random.default_rng(seed)
    steps = rng.integers(-300, 300, (len(params), size)) + rng.choice([0.0, 0.5], (len(params), size))
    with np.errstate(over="ignore"):
        x = (steps * params["scale"][:, None].astype(np.float64)).astype(np.float32)
    x[:, 1::3] = np.nextafter(x[:, 1::3], np.float32(np.inf))
    x[:, 2::3] = rng.uniform(-2, 2, x[:, 2::3].shape) * np.abs(params["range_max"][:, None])
    x[:, :4] = [0.0, -0.0, 1e-40, -1e-40]
    return np.clip(x, -3e38, 3e38)


@pytest.mark.parametrize("kind", SCHEMES, ids=str)
def test_params_equal_numpy(kind: ActivationScheme) -> None:
    pairs = ranges(11, 600)
    params = native.ranges_to_params(pairs, kind)
    expected = params_array([scheme.range_to_params(low, high, kind) for low, high in pairs])
    assert params.tobytes() == expected.tobytes()
    assert native.quant_params(params, 7) == scheme.range_to_params(*pairs[7], kind)  # type: ignore[call-arg]


@pytest.mark.slow
def test_params_equal_numpy_for_every_representable_small_case() -> None:
    grid = np.arange(-40, 41, dtype=np.float32) / np.float32(8)
    pairs = np.array([(a, b) for a in grid for b in grid if a <= b], np.float32)
    for mode in MODES:
        kind = ActivationScheme(mode)
        expected = params_array([scheme.range_to_params(low, high, kind) for low, high in pairs])
        assert native.ranges_to_params(pairs, kind).tobytes() == expected.tobytes()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", SCHEMES, ids=str)
def test_codes_and_reals_equal_numpy(kind: ActivationScheme, threads: int) -> None:
    params = native.ranges_to_params(ranges(12, 60), kind)
    x = activations(params, 13, 333)
    q = native.quantize_activations(x, params, threads=threads)
    step = native.dequantize_activations(q, params, threads=threads)
    linear = native.dequantize_activations(q, params, tensorflow=False, threads=threads)
    for i in range(len(x)):
        image_params = native.quant_params(params, i)
        np.testing.assert_array_equal(q[i], scheme.quantize_activation(x[i], image_params), err_msg=str(image_params))
        np.testing.assert_array_equal(step[i].view(np.uint32), scheme.dequantize_step(q[i], image_params).view(np.uint32))
        expected = scheme.dequantize_activation(q[i], image_params)
        np.testing.assert_array_equal(linear[i].view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("mode", QUANTIZE_MODES)
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("round_mode", tensorflow.ROUND_MODES)
def test_codes_and_reals_equal_tensorflow(mode: str, narrow: bool, round_mode: str) -> None:
    if mode != "SCALED" and (narrow or round_mode == "HALF_TO_EVEN"):
        return  # refused, see test_scheme and test_tensorflow
    pairs = ranges(14, 400)
    kind = ActivationScheme(mode, tensorflow.ROUND_MODES[round_mode], narrow)
    params = native.ranges_to_params(pairs, kind)
    x = activations(params, 15, 129)
    q = native.quantize_activations(x, params)
    real = native.dequantize_activations(q, params)
    for i, (low, high) in enumerate(pairs):
        codes, minimum, maximum = tensorflow.quantize(x[i], low, high, "qint8", mode, round_mode, narrow)
        np.testing.assert_array_equal(q[i], codes)
        assert (params["range_min"][i], params["range_max"][i]) == (minimum, maximum)
        expected = tensorflow.dequantize(codes, minimum, maximum, mode, narrow_range=narrow)
        np.testing.assert_array_equal(real[i].view(np.uint32), expected.view(np.uint32))


def test_pieces_and_threads_do_not_change_bits() -> None:
    params = native.ranges_to_params(np.array([[-1, 3], [-0.2, 0.1]], np.float32), ActivationScheme())
    x = np.random.default_rng(16).uniform(-1, 3, (2, 50001)).astype(np.float32)
    single_thread = native.quantize_activations(x, params, threads=1)
    for threads in (2, 5):
        np.testing.assert_array_equal(native.quantize_activations(x, params, threads=threads), single_thread)
    np.testing.assert_array_equal(single_thread[1], native.quantize_activations(x[1:], params[1:])[0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(mode: str, value: float) -> None:
    params = native.ranges_to_params(np.array([[0, 1]], np.float32), ActivationScheme(mode))
    x = np.zeros((1, 40000), np.float32)
    x[0, 39998] = value
    with pytest.raises(PrecisionError, match="NaN or infinity"):
        native.quantize_activations(x, params, threads=2)


@pytest.mark.parametrize(
    ("pairs", "mode", "message"),
    [
        ([[0, 1], [2, 1]], "affine", "of image 1 has min 2.0 > max 1.0"),
        ([[0, np.inf]], "affine", r"\[0.0, inf\] is not finite"),
        ([[0, 0]], "MIN_COMBINED", "too narrow or too wide for mode MIN_COMBINED"),
        ([0, 1], "affine", r"must be \(images, 2\)"),
    ],
)
def test_bad_ranges_are_named(pairs: list[object], mode: str, message: str) -> None:
    with pytest.raises(PrecisionError, match=message):
        native.ranges_to_params(np.array(pairs, np.float32), ActivationScheme(mode, ensure_minimum_range=0.0))


def test_arrays_that_do_not_fit_are_refused() -> None:
    params = native.ranges_to_params(np.array([[0, 1]], np.float32), ActivationScheme())
    x = np.zeros((1, 8), np.float32)
    with pytest.raises(PrecisionError, match="expected float32 -> int8"):
        native.quantize_activations(x.astype(np.float64), params)  # type: ignore[arg-type]
    with pytest.raises(PrecisionError, match="needs as many parameters"):
        native.quantize_activations(np.zeros((2, 8), np.float32), params)
    with pytest.raises(PrecisionError, match="C-contiguous"):
        native.quantize_activations(np.zeros((1, 8, 2), np.float32)[..., 0], params)
    with pytest.raises(PrecisionError, match="not those that ranges_to_params gives"):
        native.quantize_activations(x, np.full(1, 99, PARAMS))
