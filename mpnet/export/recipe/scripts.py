# SPDX-License-Identifier: MIT
"""The runnable part of recipes: scripts that need the quantiser, NumPy and OpenCV, and nothing of mpnet."""

from __future__ import annotations

_INPUTS = '''
WIDTH, HEIGHT, RESIZE = $width, $height, $resize


def inputs(folder):
    """The images of a folder as the network takes them: (1, 3, height, width), float32 from 0 to 1, RGB."""
    for path in sorted(Path(folder).iterdir()):
        image = cv2.imread(str(path))
        if image is None:
            continue
        rows, columns = image.shape[:2]
        scale = min(WIDTH / columns, HEIGHT / rows)
        whole, fill = (round, 114 / 255) if RESIZE == "letterbox_opencv" else (int, 0.5)
        size = (WIDTH, HEIGHT) if RESIZE == "stretch" else (max(1, whole(columns * scale)), max(1, whole(rows * scale)))
        content = cv2.resize(image, size)[:, :, ::-1] / np.float32(255)
        x = np.full((HEIGHT, WIDTH, 3), fill, np.float32)
        top, left = (HEIGHT - size[1]) // 2, (WIDTH - size[0]) // 2
        x[top : top + size[1], left : left + size[0]] = content
        yield np.ascontiguousarray(x.transpose(2, 0, 1)[None])
'''

NNCF_SCRIPT = f'''"""Quantise with NNCF what the mpnet configuration $key quantises.

python SCRIPT MODEL.onnx IMAGES OUT.onnx     MODEL.onnx: `mpnet export NET.cfg --to onnx`; OUT.xml for OpenVINO
Needs nncf, numpy, opencv-python, and onnx or openvino.
"""

import sys
from pathlib import Path

import cv2
import nncf
import numpy as np
from nncf.quantization.range_estimator import RangeEstimatorParametersSet

FLOATS = $patterns
{_INPUTS}

def main(model, images, out):
    data = list(inputs(images))
    how = dict(
        preset=nncf.QuantizationPreset.$preset,
        subset_size=len(data),
        ignored_scope=nncf.IgnoredScope(patterns=FLOATS) if FLOATS else None,
        # As measured: ranges from the least to the largest value, eight bits for the first layer's weights. NNCF by itself
        # takes means over the images, and seven bits there for x86 CPUs without VNNI: leave overflow_fix out for those.
        advanced_parameters=nncf.AdvancedQuantizationParameters(
            overflow_fix=nncf.OverflowFix.DISABLE,
            activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX,
        ),
    )
    if out.endswith(".xml"):
        import openvino as ov

        ov.save_model(nncf.quantize(ov.Core().read_model(model), nncf.Dataset(data), **how), out)
    else:
        import onnx

        graph = onnx.load(model)
        name = graph.graph.input[0].name
        onnx.save(nncf.quantize(graph, nncf.Dataset(data, lambda x: {{name: x}}), **how), out)


if __name__ == "__main__":
    main(*sys.argv[1:4])
'''

ONNXRUNTIME_SCRIPT = f'''"""Quantise with ONNX Runtime what the mpnet configuration $key quantises.

python SCRIPT MODEL.onnx IMAGES OUT.onnx     MODEL.onnx: `mpnet export NET.cfg --to onnx`
Needs onnx, onnxruntime, numpy, opencv-python.
"""

import sys
from pathlib import Path

import cv2
import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

NODES = $nodes
{_INPUTS}

class Reader(CalibrationDataReader):
    def __init__(self, name, images):
        self._inputs = ({{name: x}} for x in inputs(images))

    def get_next(self):
        return next(self._inputs, None)


def main(model, images, out):
    if not NODES:
        raise SystemExit("the configuration quantises no layer")
    name = onnx.load(model, load_external_data=False).graph.input[0].name
    quantize_static(
        model,
        out,
        Reader(name, images),
        quant_format=QuantFormat.QDQ,
        nodes_to_quantize=NODES,
        per_channel=$per_channel,
        activation_type=QuantType.$activation_type,
        weight_type=QuantType.QInt8,
        extra_options={{
            "ActivationSymmetric": $symmetric,
            "WeightSymmetric": True,
            # As measured: inputs and weights in 8 bits. Without this line results are too, which is faster and less exact.
            "OpTypesToExcludeOutputQuantization": ["Conv", "ConvTranspose", "Gemm", "MatMul"],
            **$more,
        }},
    )


if __name__ == "__main__":
    main(*sys.argv[1:4])
'''

AIMET_SCRIPT = f'''"""Quantise with AIMET the layers that mpnet's $key quantises: their inputs and weights, nothing else.

python SCRIPT MODEL.onnx IMAGES OUT          MODEL.onnx: `mpnet export NET.cfg --to onnx`; writes OUT.onnx and
                                             OUT.encodings, and both in one as OUT.qdq.onnx
Needs aimet-onnx, onnx, numpy, opencv-python.
"""

import sys
from pathlib import Path

import cv2
import numpy as np
import onnx
from aimet_onnx.quantsim import QuantizationSimModel

NODES = $nodes
{_INPUTS}

def quantisers(graph, known):
    """Names of those that hold inputs and weights of NODES; what only moves values has the one of its source."""
    maker = {{out: node for node in graph.node for out in node.output}}
    nodes = {{node.name: node for node in graph.node}}
    waiting = [name for node in NODES for name in nodes[node].input[:2]]
    wanted = set()
    while waiting:
        name = waiting.pop()
        if name in known:
            wanted.add(name)
        elif name in maker:
            waiting += [source for source in maker[name].input if source]
    return wanted


def main(model, images, out):
    graph = onnx.load(model)
    original = onnx.load(model).graph
    sim = QuantizationSimModel(graph, param_type="int8", activation_type="int8", providers=["CPUExecutionProvider"])
    known = sim.qc_quantize_op_dict
    for quantiser in known.values():
        quantiser.enabled = False
    # One quantiser may have several names: that of an upsample's source and of its result.
    for each in quantisers(original, known):
        known[each].enabled = True
    name, data = original.input[0].name, list(inputs(images))
    sim.compute_encodings(lambda session: [session.run(None, {{name: x}}) for x in data] and None)
    sim.export(str(Path(out).parent), Path(out).name)
    onnx.save(sim.to_onnx_qdq(), f"{{out}}.qdq.onnx")


if __name__ == "__main__":
    main(*sys.argv[1:4])
'''
