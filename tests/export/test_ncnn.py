# SPDX-License-Identifier: MIT
"""ncnn's files: what stands in them, what the JSON beside them says, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mpnet.errors import ConfigError, EngineError
from mpnet.export import export
from mpnet.model.quantization import ActivationOptions
from mpnet.model.weights import random_weights
from tests.backends.foreign_cases import DYNAMIC, SYMMETRIC, configured, one_layer
from tests.networks import tiny_cfg

CONVOLUTION = "[convolutional]\nfilters=6\nsize=3\npad=1\nactivation=leaky\n"


def _lines(text: str, key: str) -> list[list[str]]:
    param = export("ncnn", configured(text, key, SYMMETRIC)).files[".param"].decode()
    return [line.split() for line in param.splitlines()]


def test_counts_are_those_of_the_lines_and_every_blob_is_read_once() -> None:
    lines = _lines(tiny_cfg(), "fqhqqqhqfqqfq")
    layers, blobs = (int(word) for word in lines[1])
    assert lines[0] == ["7767517"]
    assert len(lines) - 2 == layers
    written_blobs = [blob for line in lines[2:] for blob in line[4 + int(line[2]) : 4 + int(line[2]) + int(line[3])]]
    read_blobs = [blob for line in lines[2:] for blob in line[4 : 4 + int(line[2])]]
    assert len(set(written_blobs)) == len(written_blobs) == blobs
    assert len(set(read_blobs)) == len(read_blobs)
    assert set(read_blobs) < set(written_blobs)


def test_only_int8_layers_have_scales() -> None:
    convolutions = [line for line in _lines(tiny_cfg(), "fqhqqqhqfqqfq")[2:] if line[0] == "Convolution"]
    assert ["8=2" in line for line in convolutions] == [code == "q" for code in "fqhqqqhqfqqfq"]


def test_what_holds_codes_or_their_sums_refuses_16_bits() -> None:
    # A half ends at 65504, sums of codes do not; ncnn turns halves on by itself where the CPU has them.
    text = one_layer(
        "[convolutional]\nfilters=8\nsize=3\npad=1\ngroups=8\nactivation=leaky\n"
        "[convolutional]\nfilters=8\nsize=3\npad=1\ngroups=2\nactivation=leaky\n" + CONVOLUTION
    )
    lines = _lines(text, "q")[2:]
    assert {line[0] for line in lines if "31=7" in line} == {
        "Quantize",
        "Cast",
        "Convolution",
        "ConvolutionDepthWise",
        "Concat",
        "Scale",
    }
    assert {line[0] for line in lines if "31=7" not in line} <= {"Input", "Split", "Crop", "ReLU"}


def test_those_who_read_the_same_codes_share_them() -> None:
    text = one_layer(
        CONVOLUTION + "[convolutional]\nfilters=4\nsize=1\n[route]\nlayers=-2\n[convolutional]\nfilters=4\nsize=1\n"
    )
    assert [line[0] for line in _lines(text, "q")[2:]].count("Quantize") == 2


def test_weights_are_stored_as_small_as_they_are() -> None:
    sizes = {key: len(export("ncnn", configured(tiny_cfg(), key, SYMMETRIC)).files[".bin"]) for key in "fhq"}
    assert sizes["f"] > 1.9 * sizes["h"] > 1.8 * sizes["q"]


def test_the_same_configuration_gives_the_same_bytes() -> None:
    first, second = (export("ncnn", configured(tiny_cfg(), "fqhqqqhqfqqfq", SYMMETRIC)).files for _ in range(2))
    assert first == second


def test_the_json_says_how_to_use_the_files() -> None:
    document = {"name": "street", "protocol": {"resize": "stretch", "confidence": 0.2}}
    files = export("ncnn", configured(tiny_cfg(), "q", SYMMETRIC, names=("a", "b", "c"), document=document)).files
    description = json.loads(files[".json"])
    assert list(files) == [".param", ".bin", ".json"]
    assert description["thresholds"] == {"confidence": 0.2}
    assert description["input"]["layout"] == "CHW"
    param = files[".param"].decode().split()
    assert all(head["output"] in param for head in description["heads"])


@pytest.mark.parametrize(
    ("activations", "reason"),
    [
        (DYNAMIC, "ncnn's int8 is symmetric, not affine"),
        (ActivationOptions(mode="symmetric", ranges="dynamic"), "ranges that are fixed beforehand"),
        (ActivationOptions(mode="power_of_two", ranges="calibrated"), "never towards zero"),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_layer(activations: Any, reason: str) -> None:
    with pytest.raises(
        ConfigError, match=f"^--to ncnn: layer 0 [^\n]*{reason}[^\n]*the nearest configuration that can be exported is f?h?$"
    ):
        export("ncnn", configured(one_layer(CONVOLUTION), "q", activations))


def test_half_sums_are_refused() -> None:
    with pytest.raises(ConfigError, match="the nearest configuration that can be exported is h"):
        export("ncnn", configured(one_layer(CONVOLUTION), "H", SYMMETRIC))


@pytest.mark.parametrize("target", ["ncnn", "tflite"])
def test_a_layer_without_a_form_is_refused_by_its_place(target: str) -> None:
    """Which these are: test_beyond_basic."""
    text = one_layer(CONVOLUTION.replace("6", "8") + "[reorg]\nstride=2\n", width=16, height=16)
    with pytest.raises(ConfigError, match=rf"^--to {target}[^\n]*: layer 1 [^\n]*\[reorg\] takes Reorg[^\n]*$"):
        export(target, configured(text, "f"))


@pytest.mark.parametrize(("target", "flavour"), [("ncnn", ""), ("tflite", "litert"), ("tflite", "armnn")])
def test_weights_beyond_half_are_refused_by_layer(target: str, flavour: str) -> None:
    configuration = configured(one_layer(CONVOLUTION), "h")
    weights = random_weights(configuration.network, 3)
    weights.layers[0].weights[0, 0, 0, 0] = 1e6
    with pytest.raises(EngineError, match=r"^layer 0 \(conv-1\) as fp16: a weight is 1e\+06, beyond 65504[^\n]*$"):
        export(target, configured(one_layer(CONVOLUTION), "h", weights=weights), flavour)
