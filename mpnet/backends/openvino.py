# SPDX-License-Identifier: MIT
"""OpenVINO, on the CPU."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.backends import Backend, Executed
from mpnet.backends.images import by_image, explained, first_line
from mpnet.errors import EngineError
from mpnet.export import Exported
from mpnet.export.naming import layer_of
from mpnet.formats.documents.target_file import bundled_target
from mpnet.kernels.environment import int8_sums_saturate
from mpnet.packages import requirements

_PRECISIONS = {"f32": "fp32", "u8": "int8", "i8": "int8", "f16": "fp16", "bf16": "bf16"}
# What was asked for, and what runs.
_WHY = {
    ("fp16", "fp32"): "weights are widened when loaded",
    ("bf16", "fp32"): "weights are widened when loaded",
    ("int4", "int8"): "codes are widened to 8 bits when loaded",
}
PASSES = 20
"""Of which layers' times are means."""


class OpenVinoModel:
    """A model that OpenVINO compiled for the CPU, one image at a time."""

    def __init__(self, exported: Exported, threads: int) -> None:
        import openvino

        # OpenVINO's first conversion of an array imports NumPy behind a lock of its own: two threads that meet there wait for
        # each other for ever. A model is opened before threads start, so the first conversion is made here.
        openvino.Tensor(np.zeros(1, np.float32))
        self.version: str = openvino.__version__.partition("-")[0]
        self._exported = exported
        # A CPU with bf16 or fp16 arithmetic would use it for what is asked for in fp32: figures would differ by machine.
        self._settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,
        }
        try:
            core = openvino.Core()
            model = core.read_model(exported.content)
            self._core, self._model = core, model
            self._compiled = core.compile_model(model, "CPU", self._settings)
            self._request = self._compiled.create_infer_request()
        except Exception as error:
            raise EngineError(f"OpenVINO {self.version} refuses the file: {first_line(error)}") from None
        names = [next(iter(output.get_names())) for output in self._compiled.outputs]
        self._outputs = [number for number, name in enumerate(names) if name.startswith("layer_")]

    def forward(self, batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Implement `Model.forward`."""
        try:
            return by_image(self._run, batch)
        except Exception as error:
            raise EngineError(f"OpenVINO {self.version}: {first_line(error)}") from None

    def _run(self, image: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        self._request.infer({0: image})
        # The request's tensors are written again by the next image.
        return [self._request.get_output_tensor(number).data.copy() for number in self._outputs]

    def executed(self) -> Executed:
        """Implement `Model.executed` by the runtime model."""
        executed: dict[int, tuple[str, str]] = {}
        for node in self._compiled.get_runtime_model().get_ordered_ops():
            facts = {
                key: _text(node.rt_info[key])
                for key in ("layerType", "runtimePrecision", "primitiveType")
                if key in node.rt_info
            }
            layer = layer_of(node.get_friendly_name())
            if facts.get("layerType") == "Convolution" and layer is not None:
                precision = _PRECISIONS.get(facts.get("runtimePrecision", "").lower(), facts.get("runtimePrecision", "?"))
                where = f"{facts.get('primitiveType', 'convolution')} of the runtime model"
                executed[layer] = explained(self._exported, layer, precision, where, _WHY)
        return executed

    def layer_ms(self) -> Mapping[int, float]:
        """See mpnet.backends.Model: from OpenVINO's counters, the mean of some passes."""
        compiled = self._core.compile_model(self._model, "CPU", {**self._settings, "PERF_COUNT": True})
        request = compiled.create_infer_request()
        shape = list(compiled.inputs[0].shape)
        image = np.random.Generator(np.random.PCG64(0)).random(shape, np.float32)
        times: dict[int, float] = defaultdict(float)
        for number in range(PASSES + 1):
            request.infer({0: image})
            for event in request.get_profiling_info() if number else ():
                layer = layer_of(event.node_name)
                if layer is not None:
                    times[layer] += event.real_time.total_seconds() * 1000 / PASSES
        return dict(times)


def _caution(executed: Executed) -> str:
    """Describe how int8 layers on this CPU differ from CPUs with VNNI, of which mpnet's own figures are."""
    layers = [index for index, (precision, _) in sorted(executed.items()) if precision == "int8"]
    if not layers or not int8_sums_saturate():
        return ""
    return (
        f"OpenVINO's int8 sums can overflow on this CPU in {len(layers)} layers (x86 without VNNI: pairs of products saturate "
        "at 16 bits), so accuracy here need not hold on CPUs with VNNI, nor theirs here; measure on the board's CPU"
    )


def _text(value: Any) -> str:
    """Return a runtime attribute as text; newer versions of OpenVINO wrap it."""
    return str(value.astype(str) if hasattr(value, "astype") else value)


BACKEND = Backend(bundled_target("openvino"), OpenVinoModel, requirements("openvino", "onnx"), "openvino", _caution)
