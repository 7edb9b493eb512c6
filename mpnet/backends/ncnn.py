# SPDX-License-Identifier: MIT
"""ncnn, in the same arithmetic on every machine: halves are a matter of storage unless asked for."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.backends import Backend, Executed
from mpnet.errors import EngineError
from mpnet.export import Exported
from mpnet.export.naming import layer_of
from mpnet.formats.documents.target_file import bundled_target
from mpnet.packages import requirements, version_of

_MACHINE_DEPENDENT = (
    "use_fp16_packed",
    "use_fp16_storage",
    "use_fp16_arithmetic",
    "use_bf16_storage",
    "use_bf16_packed",
    "use_vulkan_compute",
)
"""Options that ncnn turns on where the CPU can: results would hang on the machine."""


class NcnnModel:
    """One network, an image at a time.

    machine_arithmetic: leave ncnn's own choice of 16-bit arithmetic; results then differ between machines.
    """

    def __init__(self, exported: Exported, threads: int, machine_arithmetic: bool = False) -> None:
        # By name: this module is called ncnn as well.
        self._ncnn: Any = importlib.import_module("ncnn")
        self.version = version_of("ncnn") or ""
        self._param = exported.files[".param"].decode()
        self._net: Any = self._ncnn.Net()
        self._net.opt.num_threads = threads
        if not machine_arithmetic:
            for option in _MACHINE_DEPENDENT:
                if hasattr(self._net.opt, option):
                    setattr(self._net.opt, option, False)
        with TemporaryDirectory() as folder:
            # From files: what is loaded from memory goes on pointing into it.
            for suffix, load in ((".param", self._net.load_param), (".bin", self._net.load_model)):
                path = Path(folder, f"model{suffix}")
                path.write_bytes(exported.files[suffix])
                if load(str(path)) != 0:
                    raise EngineError(f"ncnn {self.version} refuses the {suffix} file")
        self._outputs = [head["output"] for head in json.loads(exported.files[".json"])["heads"]]

    def forward(self, batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Implement `Model.forward`."""
        results: list[list[NDArray[np.float32]]] = [[] for _ in self._outputs]
        for image in batch:
            planes = np.ascontiguousarray(image.transpose(2, 0, 1))
            extractor = self._net.create_extractor()
            # A Mat made of an array borrows its memory: `planes` lives until the last extract.
            extractor.input("picture", self._ncnn.Mat(planes))
            for images, name in zip(results, self._outputs, strict=True):
                status, result = extractor.extract(name)
                if status != 0:
                    raise EngineError(f"ncnn {self.version} could not compute {name} (status {status})")
                images.append(np.array(result).transpose(1, 2, 0))
            del extractor, planes
        return [np.ascontiguousarray(np.stack(images), np.float32) for images in results]

    def executed(self) -> Executed:
        """Implement `Model.executed` by the weights of each convolution in the file and the options that ncnn runs with."""
        executed = {}
        option = self._net.opt
        for line in self._param.splitlines()[2:]:
            words = line.split()
            layer = layer_of(words[1])
            if not words[0].startswith("Convolution") or layer is None:
                continue
            if any(word.startswith("8=") for word in words):
                runs = (
                    ("int8", "int8 scales in the file, int8 inference on")
                    if option.use_int8_inference
                    else ("fp32", "int8 inference is off")
                )
            else:
                half = option.use_fp16_arithmetic
                runs = ("fp16" if half else "fp32", f"16-bit arithmetic {'on' if half else 'off'}")
            executed[layer] = runs
        return executed

    def layer_ms(self) -> None:
        """Return None: the Python module does not say."""
        return None


BACKEND = Backend(bundled_target("ncnn"), NcnnModel, packages=requirements("ncnn"), extra="ncnn")
