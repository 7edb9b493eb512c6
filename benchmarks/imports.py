# SPDX-License-Identifier: MIT
"""Which architectures of other packages `mpnet import` takes, how close it computes them, and how fast.

Usage: imports.py draw FOLDER      in an environment with torch: writes ONNX files of ultralytics, torchvision, timm, libreyolo
                                   and torch.ao, or in one with tensorflow TensorFlow Lite files of keras.applications, with
                                   random weights and batch norms that measured random images
       imports.py train FOLDER DATA.yaml [EPOCHS]    with ultralytics: TRAINED are trained from random weights on its data set,
                                   20 epochs of 160x160 pixels on a CPU, and written at 320x320
       imports.py measure FOLDER   in mpnet's, with onnxruntime and ai-edge-litert: a line of CSV for each file, on standard
                                   output

The errors are the largest difference of the heads from ONNX Runtime's (one thread, no optimiser) or LiteRT's, over the head's
largest value. The times are milliseconds of one image with one thread, the least of at least five that take turns for three
seconds; `engine_ms` is that engine's.
"""

from __future__ import annotations

import csv
import sys
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np

ULTRALYTICS = (
    "yolov3-tiny yolov5n yolov6n yolov8n yolov8n-seg yolov8n-pose yolov8n-obb yolov8n-cls yolov8n-ghost yolov8n-p2 "
    "yolov9t yolov10n yolo11n yolo11n-seg yolo11n-pose yolo11n-obb yolo11n-cls yolo12n yolo12n-seg yolo26n yolo26n-seg "
    "yolo26n-pose yolo26n-obb rtdetr-resnet50"
)
# Exported by ultralytics itself, with its suppression.
SUPPRESSED = "yolov8n yolo11n yolo11n-seg"
TORCHVISION = (
    "alexnet vgg11 vgg16_bn resnet18 resnet50 resnext50_32x4d wide_resnet50_2 densenet121 googlenet mobilenet_v2 "
    "mobilenet_v3_small mobilenet_v3_large mnasnet1_0 shufflenet_v2_x1_0 squeezenet1_1 efficientnet_b0 efficientnet_v2_s "
    "regnet_y_400mf regnet_x_400mf convnext_tiny swin_t vit_b_16 maxvit_t"
)
TIMM = (
    "resnet26d resnet50d resnext26ts seresnet18 skresnet18 ecaresnet26t res2net50_26w_4s resnest14d gernet_s regnety_002 "
    "regnetx_002 repvgg_a0 rexnet_100 mobilenetv2_100 mobilenetv3_small_100 mobilenetv4_conv_small mobileone_s0 "
    "efficientnet_lite0 efficientnet_b0 tf_efficientnetv2_b0 mixnet_s mnasnet_small fbnetc_100 fbnetv3_b spnasnet_100 "
    "hardcorenas_a ghostnet_100 ghostnetv2_100 lcnet_050 tinynet_e hrnet_w18_small dla34 dpn68 vovnet39a ese_vovnet19b_dw "
    "selecsls42 cspresnet50 cspdarknet53 darknet53 densenet121 xception41 inception_v4 nf_resnet26 nfnet_l0 semnasnet_075 "
    "hgnet_tiny hgnetv2_b0 starnet_s1 repghostnet_050 fastvit_t8 repvit_m0_9 convnext_atto convnextv2_atto convmixer_768_32 "
    "poolformer_s12 edgenext_xx_small mobilevit_xxs mobilevitv2_050 efficientformer_l1 levit_128s swin_tiny_patch4_window7_224 "
    "vit_tiny_patch16_224 deit_tiny_patch16_224 resmlp_12_224 visformer_tiny"
)
# Detectors of other programs in PyTorch, by libreyolo's own exporter: the family and the size of a network. Each at a size of
# image that its coarsest grid divides; transformers at their own.
LIBREYOLO = {
    "picodet-s": 192,
    "rtmdet-t": 160,
    "yolonas-s": 160,
    "ppyoloe-s": 160,
    "yolox-n": 160,
    "yolo9-t": 160,
    "rtdetr-r18": 640,
    "dfine-n": 640,
}
# Trained quantisation of torchvision's networks, by torch.ao.
QUANTIZED = "resnet18 mobilenet_v2"
KERAS = (
    "MobileNetV2 MobileNetV3Small MobileNet EfficientNetB0 NASNetMobile MobileNetV3Large DenseNet121 EfficientNetV2B0 "
    "ResNet50V2 Xception InceptionV3 ResNet50 ConvNeXtTiny InceptionResNetV2 VGG16"
)
# Sides of images of networks whose patches do not divide the usual one.
SIDES = {"mobilevit_xxs": 256, "mobilevitv2_050": 256}
# Their first layers bring values from 0 to 255 to what the weights want.
BYTES = ("MobileNetV3", "EfficientNet", "ConvNeXt")
# Of detectors whose boxes from random weights hang on the last bit, ONNX Runtime's from float64's as well.
TRAINED = "yolov10n yolo12n yolo26n"
COLUMNS = (
    "package",
    "architecture",
    "taken",
    "layers",
    "fp32_error",
    "int8_error",
    "fp32_ms",
    "int8_ms",
    "engine_ms",
    "reason",
)


def _ultralytics(name: str) -> Any:
    from ultralytics import RTDETR, YOLO

    return (RTDETR if name.startswith("rtdetr") else YOLO)(f"{name}.yaml").model


def _torchvision(name: str) -> Any:
    import torchvision

    options = {"init_weights": True} if name == "googlenet" else {}
    return torchvision.models.get_model(name, weights=None, **options)


def _timm(name: str) -> Any:
    import timm

    return timm.create_model(name, pretrained=False, exportable=True)


PACKAGES: dict[str, tuple[str, int, Callable[[str], Any]]] = {
    "ultralytics": (ULTRALYTICS, 160, _ultralytics),
    "torchvision": (TORCHVISION, 224, _torchvision),
    "timm": (TIMM, 224, _timm),
}


def draw(folder: Path) -> None:
    """Write PACKAGE.ARCHITECTURE.onnx, or .tflite, of everything that can be exported; the rest is named on standard error."""
    folder.mkdir(parents=True, exist_ok=True)
    if find_spec("torch") is None:
        _draw_all(folder, "keras", KERAS, ".tflite", _export_keras)
        return
    for package, (names, side, make) in PACKAGES.items():
        _draw_all(folder, package, names, ".onnx", partial(_export, make, side))
    _draw_all(folder, "ultralytics", " ".join(f"{name}-nms" for name in SUPPRESSED.split()), ".onnx", _export_suppressed)
    _draw_all(folder, "libreyolo", " ".join(LIBREYOLO), ".onnx", _export_libreyolo)
    _draw_all(folder, "torch-ao", QUANTIZED, ".onnx", _export_quantized)


def _draw_all(folder: Path, package: str, names: str, suffix: str, write: Callable[[str, Path], None]) -> None:
    for name in names.split():
        path = folder / f"{package}.{name}{suffix}"
        if path.exists():
            continue
        try:
            write(name, path)
        except Exception as error:  # another program's, of whatever kind
            print(f"{path.name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr, flush=True)


def _export_keras(name: str, path: Path) -> None:
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None, input_shape=(224, 224, 3))
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    model(np.random.default_rng(0).random((2, 224, 224, 3), np.float32) * _largest(name), training=True)
    content = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    partial_path = path.with_suffix(".part")
    partial_path.write_bytes(content)
    partial_path.rename(path)


def _largest(name: str) -> float:
    """Of the values that a network takes."""
    return 255.0 if name.startswith(BYTES) else 1.0


def _export(make: Callable[[str], Any], usual_side: int, name: str, path: Path) -> None:
    import torch

    torch.manual_seed(0)
    model, side = make(name), SIDES.get(name, usual_side)
    _draw_zeros(model)
    model.train()
    _measure_norms(model, side)
    _write(model, side, path)


def _draw_zeros(model: Any) -> None:
    """Give weights that are all 0 other values: with these every result would be 0, or a normalisation do nothing."""
    from torch import nn

    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)) and not module.weight.any():
            nn.init.trunc_normal_(module.weight, std=0.02)
        if type(module).__name__ == "GlobalResponseNorm":
            nn.init.normal_(module.weight, std=0.5)
            nn.init.normal_(module.bias, std=0.1)


def _measure_norms(model: Any, side: int) -> None:
    """Give batch norms statistics of their own, which keep values of the size that a trained network has."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
            module.train()
    with torch.no_grad():
        model(torch.rand(2, 3, side, side))


def _export_suppressed(name: str, path: Path) -> None:
    import torch
    from ultralytics import YOLO

    torch.manual_seed(0)
    model = YOLO(f"{name.removesuffix('-nms')}.yaml")
    _measure_norms(model.model.train(), 160)
    model.model.eval()
    exported = Path(model.export(format="onnx", imgsz=160, nms=True, simplify=False, opset=17))
    exported.rename(path)


def _export_libreyolo(name: str, path: Path) -> None:
    from importlib import import_module

    import torch

    torch.manual_seed(0)
    family, _, size = name.rpartition("-")
    module, side = import_module(f"libreyolo.models.{family}.model"), LIBREYOLO[name]
    wrapper = next(
        value for word, value in vars(module).items() if word.lower() == f"libre{family}" and isinstance(value, type)
    )
    detector = wrapper(None, size=size, device="cpu", _scratch_init=True)
    _draw_zeros(detector.model.eval())
    _measure_norms(detector.model, side)
    detector.model.eval()
    partial_path = path.with_suffix(".part.onnx")
    detector.export("onnx", imgsz=side, output_path=str(partial_path), simplify=False)
    partial_path.rename(path)


def _export_quantized(name: str, path: Path) -> None:
    import torch
    from torch.ao import quantization as ao
    from torch.ao.quantization.quantize_fx import prepare_qat_fx

    torch.manual_seed(0)
    model = _torchvision(name).train()
    _measure_norms(model, 224)
    # Those that torch.ao takes by default have no form in ONNX: fused with their observers.
    activations = ao.FakeQuantize.with_args(
        observer=ao.MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8, reduce_range=False
    )
    mapping = ao.QConfigMapping().set_global(ao.QConfig(activations, ao.default_per_channel_weight_fake_quant))
    prepared = prepare_qat_fx(model.train(), mapping, (torch.rand(1, 3, 224, 224),))
    with torch.no_grad():
        prepared(torch.rand(2, 3, 224, 224))
    prepared.eval().apply(ao.disable_observer)
    partial_path = path.with_suffix(".part")
    torch.onnx.export(prepared, (torch.rand(1, 3, 224, 224),), str(partial_path), opset_version=17, dynamo=False)
    partial_path.rename(path)


def _write(model: Any, side: int, path: Path) -> None:
    import torch

    model.eval()
    for module in model.modules():
        if hasattr(module, "export"):  # ultralytics' heads
            module.export, module.format = True, "onnx"
    if hasattr(model, "fuse"):
        model = model.fuse()
    partial_path = path.with_suffix(".part")
    torch.onnx.export(
        model, (torch.rand(1, 3, side, side),), str(partial_path), opset_version=17, input_names=["images"], dynamo=False
    )
    partial_path.rename(path)


def train(folder: Path, data: str, epochs: int) -> None:
    """Write ultralytics.ARCHITECTURE-trained.onnx of TRAINED. data: an ultralytics data set's YAML file."""
    from ultralytics import YOLO

    folder.mkdir(parents=True, exist_ok=True)
    for name in TRAINED.split():
        model = YOLO(f"{name}.yaml")
        model.train(
            data=data, epochs=epochs, imgsz=160, batch=8, device="cpu", workers=0, optimizer="AdamW", lr0=0.002, seed=0,
            amp=False, val=False, plots=False, project=str(folder.resolve() / "runs"), name=name, exist_ok=True,
        )  # fmt: skip
        _write(YOLO(model.trainer.last).model.float(), 320, folder / f"ultralytics.{name}-trained.onnx")


def measure(folder: Path) -> Iterator[dict[str, Any]]:
    """One row for each file."""
    from mpnet.errors import MpnetError
    from mpnet.importing import Choices, import_model
    from mpnet.importing.file_metadata import Pixels

    for path in sorted([*folder.glob("*.onnx"), *folder.glob("*.tflite")]):
        package, _, name = path.stem.partition(".")
        row = {"package": package, "architecture": name}
        try:
            # What the engine is given is given here too, whatever a decoder's program trains with.
            imported = import_model(path, Choices(pixels=Pixels()))
        except MpnetError as error:
            yield row | {"taken": 0, "reason": str(error).partition(": ")[2]}
            continue
        yield row | {"taken": 1, "layers": len(imported.network.layers)} | _figures(path, imported)


def _figures(path: Path, imported: Any) -> dict[str, Any]:
    from mpnet.engine.assign import assign
    from mpnet.engine.options import resolve_options
    from mpnet.engine.plan import build_plan
    from mpnet.engine.prepare import Prepared
    from mpnet.engine.session import Session
    from mpnet.formats.weights import parse_weights
    from mpnet.kernels.isa import kernels

    network = imported.network
    x = np.random.default_rng(1).random((1, *network.in_shape), np.float32) * np.float32(_largest(path.stem.partition(".")[2]))
    engine, reference = (_in_litert if path.suffix == ".tflite" else _in_onnxruntime)(path, imported, x)
    prepared = Prepared(network, parse_weights(imported.weights, network, str(path)), kernels())
    figures, runs = {}, {"engine_ms": engine}
    is_quantized = any(layer.declared is not None and layer.declared.precision is not None for layer in network.layers)
    for precision in ("int8",) if is_quantized else ("fp32", "int8"):
        # A quantised file's own codes; any other file's layers, all as one.
        precisions = assign(network) if is_quantized else assign(network, precision)
        session = Session(prepared, build_plan(network, precisions, resolve_options(network)))
        heads = [head.reshape(1, -1, head.shape[3]).transpose(0, 2, 1).copy() for head in session.forward(x)]
        errors = [np.abs(a - b).max() / np.abs(b).max() for a, b in zip(heads, reference, strict=True)]
        figures[f"{precision}_error"] = f"{max(errors):.1e}"
        runs[f"{precision}_ms"] = partial(session.forward, x)
    return figures | _least_ms(runs)


def _in_litert(path: Path, imported: Any, x: Any) -> tuple[Callable[[], Any], list[Any]]:
    """Return a run of a file's classifier, and what it gives, (1, channels, places)."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    tensors = [interpreter.get_tensor(tensor["index"]) for tensor in interpreter.get_output_details()]
    return interpreter.invoke, [tensor.reshape(1, -1, tensor.shape[-1]).transpose(0, 2, 1) for tensor in tensors]


def _in_onnxruntime(path: Path, imported: Any, x: Any) -> tuple[Callable[[], Any], list[Any]]:
    """Return a run of a file as it is, and what its heads are, (1, channels, places)."""
    import onnx
    import onnxruntime as ort

    model, options = onnx.load(path), ort.SessionOptions()
    options.intra_op_num_threads = 1
    feeds = {model.graph.input[0].name: np.ascontiguousarray(x.transpose(0, 3, 1, 2))}
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [name for head in imported.heads for name in head]
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    plain = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    tensors = dict(zip(names, plain.run(names, feeds), strict=True))
    heads = [
        np.concatenate([tensors[name].reshape(*tensors[name].shape[:2], -1) for name in head], 1) for head in imported.heads
    ]
    return partial(session.run, None, feeds), heads


def _least_ms(runs: dict[str, Callable[[], Any]]) -> dict[str, str]:
    times: dict[str, list[float]] = {name: [] for name in runs}
    deadline = time.perf_counter() + 3
    while time.perf_counter() < deadline or min(map(len, times.values())) < 5:
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: f"{min(durations) * 1e3:.1f}" for name, durations in times.items()}


def main(arguments: list[str]) -> int:
    """See the module's own words."""
    if arguments[:1] == ["train"] and len(arguments) in (3, 4):
        train(Path(arguments[1]), arguments[2], int(arguments[3]) if len(arguments) == 4 else 20)
        return 0
    if len(arguments) != 2 or arguments[0] not in ("draw", "measure"):
        print(__doc__)
        return 2
    if arguments[0] == "draw":
        draw(Path(arguments[1]))
        return 0
    table = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    table.writeheader()
    for row in measure(Path(arguments[1])):
        table.writerow(row)
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
