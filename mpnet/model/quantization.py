# SPDX-License-Identifier: MIT
"""Options of the quantisation of tensors and weights: what an experiment or a cfg asks for, nothing computed here."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

from mpnet.model.keys import flag, number, section, word

ACTIVATION_RANGES: tuple[str, ...] = ("dynamic", "calibrated")
CALIBRATION_METHODS: tuple[str, ...] = ("min_max", "moving_average", "percentile", "entropy", "mse")
# Order = code in csrc/mpnet.h.
ROUNDINGS: tuple[str, ...] = ("half_to_even", "half_away", "truncate")
"""Of the kernels."""
SCHEME_ROUNDINGS: tuple[str, ...] = (*ROUNDINGS, "half_up")
"""Of schemes: halves toward plus infinity are rounded so by TensorFlow only."""
WEIGHT_GRANULARITIES: tuple[str, ...] = ("per_channel", "per_tensor")
PER_GROUP = "per_group"
GROUP = 32
"""Input channels that share a step. The same as MP_GROUP of csrc/types.h."""
NARROW_GRANULARITIES: tuple[str, ...] = ("per_channel", PER_GROUP)
NARROW_METHODS: tuple[str, ...] = ("mse", "min_max")
LEARNT = "learnt"
"""The rounding of weights that calibration images decide."""
NARROW_ROUNDINGS: tuple[str, ...] = (LEARNT, "nearest")


@dataclass(frozen=True)
class ActivationMode:
    """The formula by which a range of activations becomes scale and zero point.

    roundings:  how it can round, its own first.
    symmetric:  whether its codes lie evenly around the real zero.
    tensorflow: whether its formulas are TensorFlow's.
    fake:       whether that operation gives reals at once, not codes.
    narrows:    whether it can leave out the lowest code (narrow_range).
    """

    name: str
    roundings: tuple[str, ...]
    symmetric: bool = False
    tensorflow: bool = False
    fake: bool = False
    narrows: bool = False


# Order = code in csrc/quantize/mp_quantize.h.
MODES: dict[str, ActivationMode] = {
    mode.name: mode
    for mode in (
        ActivationMode("affine", ROUNDINGS),
        ActivationMode("symmetric", ROUNDINGS, symmetric=True),
        ActivationMode("power_of_two", ("truncate", "half_to_even", "half_away"), symmetric=True),
        ActivationMode("MIN_COMBINED", ("half_away",), tensorflow=True),
        ActivationMode("MIN_FIRST", ("half_away",), tensorflow=True),
        ActivationMode("SCALED", ("half_away", "half_to_even"), symmetric=True, tensorflow=True, narrows=True),
        ActivationMode("fake_quant_with_min_max_vars", ("half_up",), tensorflow=True, fake=True, narrows=True),
        ActivationMode(
            "quantize_and_dequantize", ("half_to_even", "half_up"), symmetric=True, tensorflow=True, fake=True, narrows=True
        ),
    )
}
ACTIVATION_MODES: tuple[str, ...] = tuple(MODES)
TENSORFLOW_MODES: tuple[str, ...] = tuple(name for name, mode in MODES.items() if mode.tensorflow)
KERNEL_MODES: tuple[str, ...] = tuple(name for name, mode in MODES.items() if not mode.tensorflow)
"""Those whose formulas kernels have themselves."""
QUANTIZE_MODES: tuple[str, ...] = tuple(name for name in TENSORFLOW_MODES if not MODES[name].fake)
"""Of TensorFlow's quantize and dequantize."""


@dataclass(frozen=True)
class WeightMethod:
    """A method of weight scales. roundings: how it can round, its own first; tensorflow: by TensorFlow's formulas."""

    name: str
    roundings: tuple[str, ...]
    tensorflow: bool = False


WEIGHTS: dict[str, WeightMethod] = {
    method.name: method
    for method in (
        WeightMethod("min_max", ROUNDINGS),
        WeightMethod("mse", ROUNDINGS),
        WeightMethod("power_of_two", ("truncate", "half_to_even", "half_away")),
        WeightMethod("fake_quant_with_min_max_vars", ("half_up",), tensorflow=True),
        WeightMethod("quantize_and_dequantize", ("half_to_even", "half_up"), tensorflow=True),
    )
}
WEIGHT_METHODS: tuple[str, ...] = tuple(WEIGHTS)

BY_ACTIVATIONS = "activations"

_Options = TypeVar("_Options", "ActivationOptions", "WeightOptions", "NarrowOptions", "QuantizationOptions")
_Scheme = TypeVar("_Scheme")


@dataclass(frozen=True)
class ActivationOptions:
    """Options of int8 activations; None means "not said here".

    mode:        how a range becomes scale and zero point (ACTIVATION_MODES).
    ranges:      dynamic (measured on the tensor itself, per image) or calibrated (fixed beforehand).
    method:      how calibration finds a range (CALIBRATION_METHODS).
    percentile:  share of values kept by method `percentile`, in percent, 50 to 100.
    momentum:    weight of the past in method `moving_average`, 0 to 1.
    rounding:    one of SCHEME_ROUNDINGS; the mode's own when None.
    narrow_range, ensure_minimum_range: as in TensorFlow, for its modes.
    """

    mode: str | None = field(default=None, metadata=word(ACTIVATION_MODES, cfg="quantize_mode"))
    ranges: str | None = field(default=None, metadata=word(ACTIVATION_RANGES, cfg="quantize_activations"))
    method: str | None = field(default=None, metadata=word(CALIBRATION_METHODS, cfg="quantize_calibration"))
    percentile: float | None = field(default=None, metadata=number(50, 100, cfg="quantize_percentile"))
    momentum: float | None = field(default=None, metadata=number(0, 1))
    rounding: str | None = field(default=None, metadata=word(SCHEME_ROUNDINGS, cfg="quantize_rounding"))
    narrow_range: bool | None = field(default=None, metadata=flag())
    ensure_minimum_range: float | None = field(default=None, metadata=number(0, 1e30))


@dataclass(frozen=True)
class WeightOptions:
    """Options of int8 weights; None means "not said here".

    granularity: one scale per output channel or one per tensor.
    method:      min_max; mse: the scale with the smallest squared error; power_of_two: the same among powers of two; or as
                 the TensorFlow operation of that name does it, narrow, from -max|w| to max|w|.
    rounding:    one of SCHEME_ROUNDINGS, or learnt from calibration images; the method's own when None.
    """

    granularity: str | None = field(default=None, metadata=word(WEIGHT_GRANULARITIES, cfg="quantize_weights"))
    method: str | None = field(default=None, metadata=word(WEIGHT_METHODS, cfg="quantize_weight_method"))
    rounding: str | None = field(default=None, metadata=word((*SCHEME_ROUNDINGS, LEARNT)))


@dataclass(frozen=True)
class NarrowOptions:
    """Options of weights of fewer than eight bits, in place of WeightOptions; None: the first words, and true.

    granularity:     one step per output channel, or one for every 32 input channels of each of its taps.
    method:          how a step is found.
    rounding:        learnt from calibration images, or to the nearest code.
    bias_correction: whether biases take back the mean error.
    """

    granularity: str | None = field(default=None, metadata=word(NARROW_GRANULARITIES, cfg="narrow_weights"))
    method: str | None = field(default=None, metadata=word(NARROW_METHODS, cfg="narrow_method"))
    rounding: str | None = field(default=None, metadata=word(NARROW_ROUNDINGS, cfg="narrow_rounding"))
    bias_correction: bool | None = field(default=None, metadata=flag(cfg="narrow_bias_correction"))


@dataclass(frozen=True)
class QuantizationOptions:
    """Everything that can be said about one layer's quantisation.

    equalisation: whether channels are scaled between neighbouring layers: true by their weights, BY_ACTIVATIONS by what
                  calibration images make of them. Of the whole network, where any layer says it.
    """

    activations: ActivationOptions = field(default=ActivationOptions(), metadata=section(ActivationOptions, short="ranges"))
    weights: WeightOptions = field(default=WeightOptions(), metadata=section(WeightOptions, short="granularity"))
    narrow: NarrowOptions = field(default=NarrowOptions(), metadata=section(NarrowOptions, short="rounding"))
    bias_correction: bool | None = field(default=None, metadata=flag(cfg="bias_correction"))
    equalisation: bool | str | None = field(default=None, metadata=flag(BY_ACTIVATIONS, cfg="equalisation"))
    integer_only: bool | None = field(default=None, metadata=flag(cfg="integer_only"))

    def overlaid(self, overriding: QuantizationOptions) -> QuantizationOptions:
        """Return these options with everything that `overriding` says put over them."""
        return _overlay(self, overriding)

    def plain_values(self) -> dict[str, Any]:
        """Return the options that are set as nested plain values, as protocols and identities hold them."""
        plain = {name: _stated(value) if is_dataclass(value) else value for name, value in _stated(self).items()}
        return {name: value for name, value in plain.items() if value != {}}


NO_OPTIONS = QuantizationOptions()


def scheme_of(kind: type[_Scheme], options: ActivationOptions | WeightOptions) -> _Scheme:
    """Build a dataclass of the quantization folder from what options say of its fields; the others have its defaults."""
    names = {option.name for option in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in _stated(options).items() if name in names})


def _stated(options: Any) -> dict[str, Any]:
    return {option.name: value for option in fields(options) if (value := getattr(options, option.name)) is not None}


def _overlay(base: _Options, overriding: _Options) -> _Options:
    stated = _stated(overriding)
    nested = {name: _overlay(getattr(base, name), value) for name, value in stated.items() if is_dataclass(value)}
    return replace(base, **(stated | nested))
