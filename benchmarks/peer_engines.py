# SPDX-License-Identifier: MIT
"""One engine in a process of its own: prepares a network, then times forward passes when told.

Usage: peer_engines.py ENGINE FOLDER THREADS. Prints one JSON line when ready (error against mpnet's fp32 heads),
then for each line `N` on standard input runs N passes and prints their milliseconds as a JSON list; for `steps` milliseconds
by kind of step, where the engine says.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
from numpy.typing import NDArray

Forward = Callable[[NDArray[np.float32]], list[NDArray[np.float32]]]


def to_nchw(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return x (n, h, w, c) as (n, c, h, w)."""
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def to_nhwc(results: Any) -> list[NDArray[np.float32]]:
    """Return each result (..., c, h, w) as (1, h, w, c)."""
    return [np.asarray(r, np.float32).reshape(1, *np.asarray(r).shape[-3:]).transpose(0, 2, 3, 1) for r in results]


def mpnet(variant: str, folder: Path, threads: int) -> tuple[Forward, str]:
    """Open mpnet's own engine."""
    from peer_models import open_network, options_of

    from mpnet import __version__
    from mpnet.engine.assign import assign
    from mpnet.engine.plan import build_plan
    from mpnet.engine.session import Session
    from mpnet.kernels.isa import active_level

    prepared = open_network(folder)
    network, convolutions = prepared.network, [layer.index for layer in prepared.network.convolutions]
    options = options_of(prepared, folder, {} if variant in ("int8", "mixed") else None)
    if variant == "mixed":
        head_inputs = [layer.inputs[0] for layer in network.yolos]
        overrides = {i: "fp16" if i == convolutions[0] or i in head_inputs else "int8" for i in convolutions}
        plan = assign(network, layers=overrides)
    else:
        plan = assign(network, default=variant.split("-")[0])
    session = Session(prepared, build_plan(network, plan, options), threads)
    STEPS.append(lambda x: steps_by_kind(session, x))
    return (lambda x: session.forward(x, copy=False)), f"{__version__} {active_level()}"


STEPS: list[Callable[[NDArray[np.float32]], dict[str, float]]] = []
"""What says where the time goes, of an engine that can say it."""


def steps_by_kind(session: Any, x: NDArray[np.float32]) -> dict[str, float]:
    """Milliseconds of a pass by kind of step, the least of each step added up."""
    from mpnet.model.network import ConvolutionSpec
    from mpnet.speed.steps import time_steps

    time_by_kind: dict[str, float] = {}
    for time_of in time_steps(session, x, 50):
        layer = session.plan.network.layers[time_of.step.layer]
        kind = time_of.step.operation.name
        if isinstance(layer, ConvolutionSpec) and kind.startswith("Convolve"):
            operation = "depthwise" if layer.depthwise else "grouped" if layer.groups > 1 else "convolution"
            narrow = (
                ", few channels" if operation == "convolution" and min(layer.in_shape[2], layer.filters) < FEW_CHANNELS else ""
            )
            kind = f"{operation} {layer.size}x{layer.size}/{layer.stride}{narrow}"
        time_by_kind[kind] = time_by_kind.get(kind, 0.0) + time_of.min_ms
    return time_by_kind


FEW_CHANNELS = 16
"""Channels that fill no tile."""


def onnxruntime(variant: str, folder: Path, threads: int) -> tuple[Forward, str]:
    """Open ONNX Runtime."""
    import onnxruntime as ort

    path = folder / "net.onnx"
    if variant == "int8":
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        class Images(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.images = iter(np.load(folder / "calibration.npy"))

            def get_next(self) -> Any:
                image = next(self.images, None)
                return None if image is None else {"picture": to_nchw(image[None])}

        quantized = folder / "ort-int8.onnx"
        quantize_static(
            str(path),
            str(quantized),
            Images(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        path = quantized
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0" if threads == 1 else "1")
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return (lambda x: session.run(None, {"picture": x})), ort.__version__


def openvino(variant: str, folder: Path, threads: int) -> tuple[Forward, str]:
    """Open OpenVINO."""
    import openvino as ov

    core = ov.Core()
    model = core.read_model(str(folder / ("net-int8.onnx" if variant == "int8" else "net.onnx")))
    if variant == "nncf":
        import nncf

        images = [to_nchw(p[None]) for p in np.load(folder / "calibration.npy")]
        model = nncf.quantize(model, nncf.Dataset(images), subset_size=len(images))
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(model, "CPU", settings).create_infer_request()

    def forward(x: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        request.infer([x], share_inputs=True)
        return [request.get_output_tensor(i).data for i in range(len(model.outputs))]

    return forward, str(ov.__version__).split("-")[0]


def ncnn(variant: str, folder: Path, threads: int) -> tuple[Forward, str]:
    """Open ncnn."""
    import ncnn as engine

    net = engine.Net()
    net.opt.num_threads = threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_winograd_convolution = variant != "fp32-direct"
    name = "net-int8" if variant == "int8" else "net"
    net.load_param(str(folder / f"{name}.param"))
    net.load_model(str(folder / f"{name}.bin"))
    names = [head["output"] for head in json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["heads"]]

    def forward(x: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        extractor = net.create_extractor()
        mat = engine.Mat(x[0])
        extractor.input("picture", mat)
        return [np.array(extractor.extract(name)[1])[None] for name in names]

    return forward, engine.__version__


def litert(variant: str, folder: Path, threads: int) -> tuple[Forward, str]:
    """Open LiteRT."""
    from importlib.metadata import version

    from ai_edge_litert.interpreter import Interpreter

    name = {"fp32": "net", "int8": "net-int8", "dynamic": "net-dynamic"}[variant]
    model = Interpreter(str(folder / f"{name}.tflite"), num_threads=threads)
    model.allocate_tensors()
    source, targets = model.get_input_details()[0]["index"], model.get_output_details()

    def forward(x: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        model.set_tensor(source, x)
        model.invoke()
        return [model.get_tensor(t["index"]) for t in targets]

    return forward, version("ai-edge-litert")


def opencv(variant: str, folder: Path, threads: int) -> tuple[Forward, str]:
    """Open OpenCV's DNN."""
    import cv2

    cv2.setNumThreads(threads)
    net = cv2.dnn.readNetFromONNX(str(folder / "net.onnx"))
    names = net.getUnconnectedOutLayersNames()

    def forward(x: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        net.setInput(x)
        return list(net.forward(names))

    return forward, cv2.__version__


# name -> (maker, input layout of the engine)
ENGINES: dict[str, tuple[Callable[[str, Path, int], tuple[Forward, str]], str]] = {
    "mpnet": (mpnet, "nhwc"),
    "onnxruntime": (onnxruntime, "nchw"),
    "openvino": (openvino, "nchw"),
    "ncnn": (ncnn, "nchw"),
    "litert": (litert, "nhwc"),
    "opencv": (opencv, "nchw"),
}


def main() -> int:
    """Answer requests on standard input with an engine."""
    engine, variant = sys.argv[1].split(":")
    folder, threads = Path(sys.argv[2]), int(sys.argv[3])
    maker, layout = ENGINES[engine]
    try:
        forward, version = maker(variant, folder, threads)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return 0
    x = np.load(folder / "image.npy")
    batch = x if layout == "nhwc" else to_nchw(x)
    error = None
    if (folder / "heads.npz").exists():
        results = [np.array(r, np.float32) for r in forward(batch)]
        expected = list(np.load(folder / "heads.npz").values())
        results = results if layout == "nhwc" else to_nhwc(results)
        error = max(float(np.sqrt(((a - b) ** 2).mean() / (b**2).mean())) for a, b in zip(results, expected, strict=True))
    print(json.dumps({"version": version, "error": error}), flush=True)
    for line in sys.stdin:
        if line.strip() == "steps":
            print(json.dumps(STEPS[0](x) if STEPS else {}), flush=True)
            continue
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            forward(batch)
            times.append(1e3 * (time.perf_counter() - start))
        print(json.dumps(times), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
