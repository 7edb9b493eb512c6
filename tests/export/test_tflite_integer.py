# SPDX-License-Identifier: MIT
"""Configurations in whole numbers alone: LiteRT's reference kernels give mpnet's codes in every tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpnet.engine.session import Session
from mpnet.errors import ConfigError
from mpnet.export import Configuration, export
from mpnet.model.quantization import ActivationOptions, QuantizationOptions
from tests.backends.foreign_cases import CALIBRATED, SHUFFLED, SYMMETRIC, batch_of, configured
from tests.engine.test_integer import EVERYTHING
from tests.networks import tiny_cfg

litert = pytest.importorskip("ai_edge_litert.interpreter", reason="SKIPPED WITHOUT LITERT: pip install 'mpnet[litert]'")
PADDED = ("PAD", "PADV2")
# What a convolution of int8 reads in int16, where that is all there is to give int16; the steps of a channel shuffle.
INTERMEDIATE_SUFFIXES = ("/codes", "/groups", "/turned")


def configure_integers(text: str, key: str, activations: ActivationOptions = CALIBRATED) -> Configuration:
    return configured(text, key, activations, quantization=QuantizationOptions(integer_only=True))


def tensors_in_litert(configuration: Configuration, image: Any) -> tuple[list[Any], list[Any]]:
    """Return (what each operator but paddings made, the heads), by the reference kernels, without XNNPACK."""
    engine = litert.Interpreter(
        model_content=export("tflite", configuration, "integer").content,
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    engine.allocate_tensors()
    engine.set_tensor(engine.get_input_details()[0]["index"], image)
    engine.invoke()
    names = {detail["index"]: detail["name"] for detail in engine.get_tensor_details()}
    operators = [operator for operator in engine._get_ops_details() if operator["op_name"] not in PADDED]
    outputs = [int(operator["outputs"][0]) for operator in operators]
    tensors = [engine.get_tensor(output) for output in outputs if not names[output].endswith(INTERMEDIATE_SUFFIXES)]
    return tensors, [engine.get_tensor(detail["index"]) for detail in engine.get_output_details()]


@pytest.mark.parametrize(
    "activations", [CALIBRATED, ActivationOptions(mode="symmetric", ranges="calibrated")], ids=["affine", "symmetric"]
)
@pytest.mark.parametrize(
    ("text", "keys"),
    [(EVERYTHING, ("q", "i", "qiqi", "iqiq", "qqqi")), (tiny_cfg(), ("q", "i", "qiqiqiqiqiqiq")), (SHUFFLED, ("q", "i", "qi"))],
    ids=["everything", "tiny", "shuffled"],
)
def test_every_tensor_is_litert_s_to_the_bit(text: str, keys: tuple[str, ...], activations: ActivationOptions) -> None:
    for key in keys:
        configuration = configure_integers(text, key, activations)
        image = batch_of(configuration.network)[:1]
        tensors: list[Any] = []
        session = Session(configuration.prepared, configuration.plan)
        session.observe(
            image,
            lambda _, step, inputs, output: None if step.operation.is_head else tensors.append(output.host().copy()),  # noqa: B023
        )
        theirs, heads = tensors_in_litert(configuration, image)
        assert len(tensors) == len(theirs)
        for ours, expected in zip(tensors, theirs, strict=True):
            assert ours.dtype == expected.dtype
            np.testing.assert_array_equal(ours, expected)
        for ours, expected in zip(session.forward(image), heads, strict=True):
            np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize(("name", "flavour"), [("tflite", "litert"), ("tflite", "armnn"), ("onnx", ""), ("ncnn", "")])
def test_others_are_refused_in_one_line(name: str, flavour: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^[^\n]*integer_only is written by --to bundle and --to tflite --flavour integer alone[^\n]*$"
    ):
        export(name, configure_integers(EVERYTHING, "q", SYMMETRIC), flavour)


def test_space_to_depth_of_16_bits_is_refused_by_layer() -> None:
    reorg = "[net]\nwidth=8\nheight=8\nchannels=3\n[convolutional]\nfilters=4\nsize=1\nactivation=linear\n[reorg3d]\nstride=2\n"
    assert export("tflite", configure_integers(reorg, "q"), "integer").content
    with pytest.raises(ConfigError, match=r"layer 1 \(.*\): SPACE_TO_DEPTH knows no int16; set the layer to int8"):
        export("tflite", configure_integers(reorg, "i"), "integer")
