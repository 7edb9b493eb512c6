# SPDX-License-Identifier: MIT
"""ONNX Runtime, on the CPU."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.backends import Backend, Executed
from mpnet.backends.images import by_image, explained, first_line
from mpnet.errors import EngineError
from mpnet.export import Exported
from mpnet.export.naming import layer_of
from mpnet.formats.documents.target_file import bundled_target
from mpnet.packages import requirements

# What the optimised graph calls a convolution: operator -> precision of its products.
_CONVOLUTIONS = {"QLinearConv": "int8", "ConvInteger": "int8", "Conv": "fp32", "FusedConv": "fp32", "NhwcFusedConv": "fp32"}
_READ_AS_REALS = "its int8 convolution gives 8 bits only, and something reads this one's result as reals"
_WIDE_AS_REALS = "it convolves no codes of 16 bits, but the reals that they mean"
# What was asked for, and what runs.
_WHY = {
    ("int8", "fp32"): _READ_AS_REALS,
    ("int4", "fp32"): _READ_AS_REALS,
    ("int16", "fp32"): _WIDE_AS_REALS,
    ("int16w4", "fp32"): _WIDE_AS_REALS,
    ("int4", "int8"): "codes are widened to 8 bits when loaded",
    ("fp16", "fp32"): "weights are widened when loaded, results rounded to half",
    ("bf16", "fp32"): "weights are widened when loaded, results rounded to bfloat16",
}
PASSES = 20
"""Of which layers' times are means."""


class OnnxRuntimeModel:
    """A session of ONNX Runtime on the CPU, one image at a time."""

    def __init__(self, exported: Exported, threads: int) -> None:
        import onnxruntime

        self.version: str = onnxruntime.__version__
        self._exported, self._threads, self._runtime = exported, threads, onnxruntime
        self._session = self._open()
        self._outputs = [output.name for output in self._session.get_outputs() if output.name.startswith("layer_")]

    def _open(self, **settings: Any) -> Any:
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self._threads, 1
        options.log_severity_level = 3
        for name, value in settings.items():
            setattr(options, name, value)
        try:
            return self._runtime.InferenceSession(self._exported.content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise EngineError(f"ONNX Runtime {self.version} refuses the file: {first_line(error)}") from None

    def forward(self, batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Implement `Model.forward`."""
        try:
            return by_image(lambda image: self._session.run(self._outputs, {"picture": image}), batch)
        except Exception as error:
            raise EngineError(f"ONNX Runtime {self.version}: {first_line(error)}") from None

    def optimised(self) -> Any:
        """Return the graph that really runs, an onnx.ModelProto."""
        import onnx

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "optimised.onnx"
            self._open(optimized_model_filepath=str(path))
            return onnx.load(str(path))

    def executed(self) -> Executed:
        """Implement `Model.executed` by the optimised graph."""
        executed: dict[int, tuple[str, str]] = {}
        for node in self.optimised().graph.node:
            precision = _CONVOLUTIONS.get(node.op_type)
            layer = next((index for name in (node.name, *node.output) if (index := layer_of(name)) is not None), None)
            if precision is not None and layer is not None:
                where = f"{node.op_type} of the optimised graph"
                executed[layer] = explained(self._exported, layer, precision, where, _WHY)
        return executed

    def layer_ms(self) -> Mapping[int, float]:
        """See mpnet.backends.Model: from ONNX Runtime's profile, the mean of some passes."""
        with tempfile.TemporaryDirectory() as folder:
            session = self._open(enable_profiling=True, profile_file_prefix=str(Path(folder) / "profile"))
            shape = session.get_inputs()[0].shape
            image = np.random.Generator(np.random.PCG64(0)).random(shape, np.float32)
            for _ in range(PASSES):
                session.run(self._outputs, {"picture": image})
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        times: dict[int, float] = defaultdict(float)
        for event in events:
            name = str(event.get("name", ""))
            layer = layer_of(name)
            if event.get("cat") == "Node" and name.endswith("_kernel_time") and layer is not None:
                times[layer] += float(event["dur"]) / 1000 / PASSES
        return dict(times)


BACKEND = Backend(bundled_target("onnxruntime"), OnnxRuntimeModel, requirements("onnxruntime", "onnx"), "onnxruntime")
