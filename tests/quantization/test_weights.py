# SPDX-License-Identifier: MIT
"""Weights as int8."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.errors import PrecisionError
from mpnet.model.quantization import WEIGHT_GRANULARITIES, WEIGHT_METHODS
from mpnet.quantization.weights import WeightScheme, dequantize_weights, quantize_weights


def weights(seed: int, shape: tuple[int, ...] = (6, 4, 3, 3)) -> np.ndarray:
    print("seed", seed)
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.uniform(-4, 1, (shape[0], *[1] * (len(shape) - 1)))
    return (rng.standard_t(3, shape) * sizes).astype(np.float32)


def squared_error(w: np.ndarray, scheme: WeightScheme) -> np.ndarray:
    codes, scales = quantize_weights(w, scheme)
    error = dequantize_weights(codes, scales).astype(np.float64) - w
    return (error**2).reshape(len(w), -1).sum(axis=1)


def test_per_channel_reaches_127_in_every_channel() -> None:
    w = weights(1)
    codes, scales = quantize_weights(w, WeightScheme())
    assert np.abs(codes.astype(int)).reshape(6, -1).max(axis=1).tolist() == [127] * 6
    np.testing.assert_array_equal(scales, np.abs(w).reshape(6, -1).max(axis=1) / np.float32(127))


def test_per_tensor_has_one_scale() -> None:
    w = weights(2)
    codes, scales = quantize_weights(w, WeightScheme("per_tensor"))
    assert scales.tolist() == [float(np.abs(w).max() / np.float32(127))] * 6
    assert np.abs(codes.astype(int)).max() == 127


@pytest.mark.parametrize("granularity", WEIGHT_GRANULARITIES)
@pytest.mark.parametrize("method", ["min_max", "mse"])
def test_error_is_half_a_step_unless_clipped(granularity: str, method: str) -> None:
    w = weights(3)
    codes, scales = quantize_weights(w, WeightScheme(granularity, method))
    steps = np.abs(dequantize_weights(codes, scales).astype(np.float64) - w) / scales[:, None, None, None]
    is_unclipped = np.abs(codes) < 127
    # 1e-4: the float32 roundings of 1 / scale and of the product, at most 127 steps * 3 * 2^-24.
    assert steps[is_unclipped].max() <= 0.5 + 1e-4


def test_mse_is_never_worse_than_min_max() -> None:
    for seed in range(5):
        w = weights(10 + seed)
        assert (squared_error(w, WeightScheme(method="mse")) <= squared_error(w, WeightScheme())).all()
        tensor = WeightScheme("per_tensor", "mse"), WeightScheme("per_tensor")
        assert squared_error(w, tensor[0]).sum() <= squared_error(w, tensor[1]).sum()


def test_mse_clips_one_outlier_among_many() -> None:
    w = np.full((1, 1000), 1.0, np.float32) * np.linspace(-1, 1, 1000, dtype=np.float32)
    w[0, 0] = 2.0
    assert quantize_weights(w, WeightScheme(method="mse"))[1][0] < 2 / 127


def test_power_of_two_equals_the_reference_program_s_rule() -> None:
    w = weights(4)
    codes, scales = quantize_weights(w, WeightScheme("per_tensor", "power_of_two"))
    best = min(
        (float(((np.clip(np.trunc(w * 2.0**m), -127, 127) / 2.0**m - w.astype(np.float64)) ** 2).sum()), m)
        for m in range(-16, 16)
    )
    assert scales[0] == 2.0 ** -best[1]
    np.testing.assert_array_equal(codes, np.clip(np.trunc(w * np.float32(2.0 ** best[1])), -127, 127).astype(np.int8))


@pytest.mark.parametrize("granularity", WEIGHT_GRANULARITIES)
@pytest.mark.parametrize("method", WEIGHT_METHODS)
def test_dead_channels_and_denormals_are_quantised(granularity: str, method: str) -> None:
    w = weights(5)
    w[2] = 0
    w[3] = 1e-42
    codes, scales = quantize_weights(w, WeightScheme(granularity, method))
    assert not codes[2].any()
    assert (scales > 0).all()
    assert np.isfinite(1 / scales).all()
    if granularity == "per_channel":
        assert scales[2] == 1.0


def test_narrow_weights_keep_all_127_steps() -> None:
    codes, _ = quantize_weights(np.linspace(-0.003, 0.003, 255, dtype=np.float32)[None], WeightScheme())
    assert np.unique(codes).size == 255


def test_small_pieces_give_the_same_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    w = weights(6, (3, 700))
    unsplit = quantize_weights(w, WeightScheme(method="mse"))
    monkeypatch.setattr("mpnet.quantization.weights._PIECE", 64)
    pieces = quantize_weights(w, WeightScheme(method="mse"))
    assert unsplit[1].tolist() == pieces[1].tolist()


@pytest.mark.parametrize(
    ("w", "message"),
    [
        (np.zeros((0, 3)), "there are none"),
        (np.array([[1.0, 2.0], [np.nan, 0.0]]), "NaN or infinity in output channel 1"),
        (np.array([[np.inf]]), "NaN or infinity in output channel 0"),
    ],
)
def test_bad_weights_are_named(w: np.ndarray, message: str) -> None:
    with pytest.raises(PrecisionError, match=message):
        quantize_weights(w, WeightScheme())


@pytest.mark.parametrize(
    "options", [{"granularity": "per_row"}, {"method": "kl"}, {"rounding": "up"}], ids=lambda o: next(iter(o))
)
def test_unknown_words_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(PrecisionError, match=f"unknown {next(iter(options))} .*known are"):
        WeightScheme(**options)
