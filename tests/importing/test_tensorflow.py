# SPDX-License-Identifier: MIT
"""What TensorFlow's own converter writes, where TensorFlow is installed, gives what LiteRT gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import pytest

from mpnet.formats.weights import parse_weights
from mpnet.importing import import_model
from mpnet.quantization.weights import WeightScheme, quantize_weights
from tests.importing.conftest import heads_of

SIDE = 32


def _mobile(tf: Any, x: Any) -> Any:
    """Build depthwise blocks, squeeze and excitation, a classifier."""
    k = tf.keras.layers
    x = k.ReLU(6.0)(k.BatchNormalization()(k.Conv2D(16, 3, strides=2, padding="same", use_bias=False)(x)))
    y = k.ReLU(6.0)(k.BatchNormalization()(k.DepthwiseConv2D(3, padding="same", use_bias=False)(x)))
    gate = k.Conv2D(16, 1, activation="hard_sigmoid")(
        k.Conv2D(4, 1, activation="relu")(k.GlobalAveragePooling2D(keepdims=True)(y))
    )
    x = k.Add()([x, k.BatchNormalization()(k.Conv2D(16, 1, use_bias=False)(k.Multiply()([y, gate])))])
    x = k.Conv2D(24, 3, strides=2, padding="same", activation="hard_swish")(x)
    return k.Dense(10, activation="softmax")(k.GlobalAveragePooling2D()(x))


def _detector(tf: Any, x: Any) -> Any:
    """Build two grids, joined and parted channels, most activations."""
    k = tf.keras.layers
    x = k.LeakyReLU(negative_slope=0.1)(k.Conv2D(16, 3, padding="same")(x))
    x = k.MaxPooling2D()(k.PReLU(shared_axes=[1, 2], alpha_initializer="glorot_uniform")(k.Conv2D(16, 3, padding="same")(x)))
    a, b = tf.keras.ops.split(k.Conv2D(16, 1, activation="swish")(x), 2, axis=-1)
    x = k.Concatenate()([a, k.Conv2D(8, 3, padding="same", activation="tanh")(b), k.MaxPooling2D(5, 1, "same")(b)])
    coarse = k.Conv2D(24, 3, strides=2, activation="elu")(k.ZeroPadding2D(1)(x))
    joined = k.Concatenate()([k.UpSampling2D()(coarse), k.Conv2DTranspose(8, 2, strides=2, activation="relu")(coarse), x])
    fine = k.Conv2D(12, 1, activation="sigmoid")(k.AveragePooling2D(3, 1, "same")(joined))
    return [k.Conv2D(18, 1)(coarse), k.Conv2D(18, 3, dilation_rate=2, padding="same")(fine)]


def _function(tf: Any, x: Any) -> Any:
    """Build what is written without Keras: space to depth, slices, arithmetic with constants, nearest resizing."""
    random = np.random.default_rng(5)
    x = tf.nn.space_to_depth(x, 2)
    x = tf.nn.relu6(tf.nn.conv2d(x, random.normal(0, 0.3, (3, 3, 12, 16)).astype("f"), 2, "SAME") + np.float32(0.5))
    x = x * random.uniform(0.5, 1.5, 16).astype("f") - random.uniform(0, 0.5, 16).astype("f")
    x = tf.concat([x[..., 4:12], x * tf.sigmoid(x)], -1)
    x = tf.image.resize(x, (SIDE // 2, SIDE // 2), "nearest")
    x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
    return tf.nn.conv2d(x, random.normal(0, 0.1, (3, 3, 24, 9)).astype("f"), 1, "VALID")


NETWORKS: dict[str, Callable[[Any, Any], Any]] = {"mobile": _mobile, "detector": _detector, "function": _function}


def converted(tf: Any, name: str, folder: Path, **options: Any) -> Path:
    """Return a network as its converter writes it, with random weights and batch norms."""
    tf.keras.utils.set_random_seed(7)
    if name == "function":
        signature = tf.TensorSpec((1, SIDE, SIDE, 3), tf.float32)
        function = tf.function(lambda x: _function(tf, x)).get_concrete_function(signature)
        converter = tf.lite.TFLiteConverter.from_concrete_functions([function])
    else:
        x = tf.keras.Input((SIDE, SIDE, 3), batch_size=1)
        model = tf.keras.Model(x, NETWORKS[name](tf, x))
        random = np.random.default_rng(8)
        for layer in model.layers:
            if isinstance(layer, tf.keras.layers.BatchNormalization):
                layer.set_weights([random.uniform(0.5, 1.5, w.shape) for w in layer.get_weights()])
        converter = tf.lite.TFLiteConverter.from_keras_model(model)
    for option, value in options.items():
        setattr(converter, option, value)
    path = folder / f"{name}.tflite"
    path.write_bytes(converter.convert())
    return path


def litert(tf: Any, path: Path, x: np.ndarray) -> list[np.ndarray]:
    engine = tf.lite.Interpreter(model_path=str(path), num_threads=1)
    engine.allocate_tensors()
    engine.set_tensor(engine.get_input_details()[0]["index"], x)
    engine.invoke()
    return [engine.get_tensor(output["index"]) for output in engine.get_output_details()]


def _pair_heads(heads: list[np.ndarray], references: list[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pair heads by their sizes, since the outputs of a file come in an order of its own."""
    for head, reference in zip(sorted(heads, key=np.size), sorted(references, key=np.size), strict=True):
        yield head, reference.reshape(head.shape)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NETWORKS))
def test_heads_equal_litert(name: str, tensorflow_here: Any, tmp_path: Path) -> None:
    path = converted(tensorflow_here, name, tmp_path)
    imported = import_model(path)
    x = np.random.default_rng(4).random((1, SIDE, SIDE, 3), np.float32)
    for head, reference in _pair_heads(heads_of(imported, x), litert(tensorflow_here, path, x)):
        assert np.abs(head - reference).max() <= 2e-6 * np.abs(reference).max()


@pytest.mark.slow
@pytest.mark.parametrize("calibrated", [True, False], ids=["full int8", "dynamic range"])
def test_quantised_files_keep_their_integers(calibrated: bool, tensorflow_here: Any, tmp_path: Path) -> None:
    tf = tensorflow_here
    images = [np.random.default_rng(i).random((1, SIDE, SIDE, 3), np.float32) for i in range(8)]
    arguments = {"representative_dataset": lambda: ([x] for x in images)} if calibrated else {}
    path = converted(tf, "mobile", tmp_path, optimizations=[tf.lite.Optimize.DEFAULT], **arguments)
    imported = import_model(path)
    network = imported.network
    weights = parse_weights(imported.weights, network, "w")
    engine = tf.lite.Interpreter(model_path=str(path), experimental_preserve_all_tensors=True)
    engine.allocate_tensors()
    engine.invoke()
    file_codes = {
        np.sort(engine.get_tensor(tensor["index"]).ravel()).tobytes()
        for tensor in engine.get_tensor_details()
        if tensor["dtype"] is np.int8 and tensor["shape"].size
    }
    int8_layers = [
        layer for layer in network.convolutions if layer.declared is not None and str(layer.declared.precision) == "int8"
    ]
    assert int8_layers
    for layer in int8_layers:
        codes, _ = quantize_weights(weights.layers[layer.index].weights, WeightScheme())
        assert np.sort(codes.ravel()).tobytes() in file_codes
    for x in images[:2]:
        for head, reference in _pair_heads(heads_of(imported, x), litert(tf, path, x)):
            # Shares of ten classes; LiteRT rounds after every operator.
            assert np.abs(head - reference).max() < 0.05
