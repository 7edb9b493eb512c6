# SPDX-License-Identifier: MIT
"""LiteRT: TensorFlow Lite files through XNNPACK."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.backends import Backend, Executed
from mpnet.backends.images import first_line
from mpnet.errors import EngineError
from mpnet.export import Exported
from mpnet.export.naming import layer_of
from mpnet.formats.documents.target_file import bundled_target
from mpnet.packages import requirements, version_of

_DELEGATE = "DELEGATE"
_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")


class LiteRTModel:
    """One file in an interpreter, an image at a time: ranges are the image's own."""

    def __init__(self, exported: Exported, threads: int) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.version = version_of("ai-edge-litert") or ""
        self._exported = exported
        try:
            self._interpreter: Any = Interpreter(model_content=exported.content, num_threads=threads)
            self._interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise EngineError(f"LiteRT {self.version} refuses the model: {first_line(error)}") from None
        self._input = self._interpreter.get_input_details()[0]["index"]
        self._outputs = [detail["index"] for detail in self._interpreter.get_output_details()]

    def forward(self, batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Implement `Model.forward`."""
        results: list[list[NDArray[np.float32]]] = [[] for _ in self._outputs]
        for image in batch:
            try:
                self._interpreter.set_tensor(self._input, image[None])
                self._interpreter.invoke()
            except (ValueError, RuntimeError) as error:
                raise EngineError(f"LiteRT {self.version}: {first_line(error)}") from None
            for images, index in zip(results, self._outputs, strict=True):
                images.append(self._interpreter.get_tensor(index))
        return [np.concatenate(images) for images in results]

    def executed(self) -> Executed:
        """Implement `Model.executed` by the file's operators, and those that XNNPACK took over."""
        operators = self._interpreter._get_ops_details()
        names = {detail["index"]: detail["name"] for detail in self._interpreter.get_tensor_details()}
        taken = {int(tensor) for operator in operators if operator["op_name"] == _DELEGATE for tensor in operator["inputs"]}
        executed = {}
        for operator in operators:
            layer = layer_of(names.get(int(operator["outputs"][0]), ""))
            if operator["op_name"] in _CONVOLUTIONS and layer is not None:
                activations, weights = (np.dtype(kind).name for kind in operator["operand_types"][:2])
                precision = "fp32" if weights != "int8" else "int16" if activations == "int16" else "int8"
                where = "XNNPACK" if int(operator["inputs"][1]) in taken else "a kernel of TensorFlow Lite, not XNNPACK"
                hybrid = precision == "int8" and activations == "float32"
                executed[layer] = (precision, f"{where}, hybrid" if hybrid else where)
        return executed

    def layer_ms(self) -> None:
        """Return None: LiteRT does not say how long layers take."""
        return None


BACKEND = Backend(bundled_target("litert"), LiteRTModel, packages=requirements("ai-edge-litert"), extra="litert")
