# SPDX-License-Identifier: MIT
"""ONNX and TensorFlow Lite models mutated by structure, through `mpnet.importing`.

python -m tests.fuzz.import_models onnx|tflite FILES [SEED] [--kept FOLDER]: every file must be imported, or refused in one line
that names it, within 10 s of CPU time, and the process must stay below 1 GB. What does not is kept in FOLDER and named once per
place. Fields of messages get values that matter, the values of other fields, or are repeated, left out and exchanged; bytes
alone (tests/fuzz/readers.py) rarely get past the parser.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np

from mpnet.errors import MpnetError
from mpnet.importing import import_model
from mpnet.importing.operators import OPERATORS

SECONDS, MEMORY_BYTES = 10, 1 << 30
INTEGERS = (0, 1, -1, 2, 3, 4, 7, 8, 255, 1024, 1 << 16, 1 << 20, 1 << 30, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1)
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 6.0, 1e-30, 1e30, float("inf"), -float("inf"), float("nan"))
TEXTS = (
    "",
    "x",
    "images",
    "NOTSET",
    "SAME_UPPER",
    "linear",
    "nearest",
    "edge",
    "\n",
    "\0",
    "é" * 50,
    "-1",
    "axis",
    "ai.onnx.ml",
)


def _number(rng: random.Random, old_value: Any) -> int:
    return int(
        rng.choice((rng.choice(INTEGERS), int(old_value) + rng.choice((-1, 1)), int(old_value) * 2, rng.randrange(-2, 9)))
    )


# ONNX: any message of the file, through protobuf's own descriptors.


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for element in value if field.is_repeated else [value]:
                yield from _messages(element)


def _scalar(rng: random.Random, field: Any, old_value: Any, texts: list[str]) -> Any:
    match field.cpp_type:
        case 5 | 6:
            return rng.choice(REALS)
        case 9 if isinstance(old_value, bytes):
            return rng.choice(
                (b"", old_value[: len(old_value) // 2], old_value * 2, rng.choice(texts).encode(), rng.randbytes(8))
            )
        case 9:
            return rng.choice(texts)
        case 8:
            return rng.choice([value.number for value in field.enum_type.values])
        case kind:
            number = _number(rng, old_value)
            low, high = {1: (-(1 << 31), (1 << 31) - 1), 2: (-(1 << 63), (1 << 63) - 1)}.get(kind, (0, (1 << 32) - 1))
            return max(low, min(high, number))


def mutate_onnx(model: Any, rng: random.Random) -> None:
    """Change some fields of a ModelProto in place."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        every = list(_messages(model))
        texts = [*TEXTS, *OPERATORS, *(name for node in model.graph.node for name in (*node.input, *node.output, node.name))]
        message = rng.choice(every if rng.random() < 0.5 else [m for m in every if m.DESCRIPTOR.name in _BUSY] or every)
        fields = message.DESCRIPTOR.fields
        field = rng.choice(
            [pair[0] for pair in message.ListFields()] if message.ListFields() and rng.random() < 0.8 else fields
        )
        value = getattr(message, field.name)
        if not field.is_repeated:
            if field.message_type is None:
                setattr(message, field.name, _scalar(rng, field, value, texts))
            elif rng.random() < 0.5:
                message.ClearField(field.name)
            else:
                _copied(rng, every, value)
            continue
        index, action = rng.randrange(len(value)) if value else 0, rng.randrange(6)
        if not value or action == 0:
            if field.message_type is None:
                value.append(_scalar(rng, field, b"" if field.type == 12 else 0, texts))
            else:
                _copied(rng, every, value.add())
        elif action == 1:
            del value[index]
        elif action == 2 and field.message_type is not None:
            _copied(rng, [value[index]], value.add())
        elif action == 3 and len(value) > 1:
            other_index = rng.randrange(len(value))
            pair = [type(v)() if field.message_type else v for v in (value[index], value[other_index])]
            if field.message_type is not None:
                for copy, source in zip(pair, (value[other_index], value[index]), strict=True):
                    copy.CopyFrom(source)
                value[index].CopyFrom(pair[0])
                value[other_index].CopyFrom(pair[1])
            else:
                value[index], value[other_index] = pair[1], pair[0]
        elif field.message_type is None:
            value[index] = _scalar(rng, field, value[index], texts)
        else:
            _copied(rng, every, value[index])


_BUSY = ("NodeProto", "AttributeProto", "TensorProto", "TensorShapeProto", "Dimension", "StringStringEntryProto")


def _copied(rng: random.Random, every: list[Any], target: Any) -> None:
    """Make a message one of the others of its type."""
    candidates = [message for message in every if message.DESCRIPTOR is target.DESCRIPTOR]
    if candidates:
        source = type(target)()  # one may be a part of the other
        source.CopyFrom(rng.choice(candidates))
        target.CopyFrom(source)


def _onnx_seeds() -> list[Any]:
    from tests.importing.graphs import MODELS, Builder, yolov5n, yolov8n
    from tests.importing.test_attention import FORMS as ATTENTION
    from tests.importing.test_channels_last import FORMS as CHANNELS_LAST
    from tests.importing.test_channels_last import build_model
    from tests.importing.test_onnx import FORMS, build_small_model

    seeds = [build_small_model(add_layers=form) for form in FORMS.values()] * 2
    seeds += [yolov8n(32, classes=2, w=2), yolov5n(32, classes=2, w=2), MODELS["mobilenetv3-small"]()]
    b = Builder(8)
    x = b.node("QuantizeLinear", ["images", b.constant(0.1), b.constant(0, np.uint8)], 3)
    x = b.node("DequantizeLinear", [x, b.constant(0.1), b.constant(0, np.uint8)], 3)
    w = b.node(
        "DequantizeLinear", [b.constant(np.ones((4, 3, 3, 3)), np.int8), b.constant([0.1] * 4), b.constant([0] * 4, np.int8)]
    )
    quantised = b.model([b.node("Conv", [x, w], 4, kernel_shape=[3, 3], pads=[1] * 4)])
    quantised.metadata_props.add(key="mpnet.pixels", value='{"mean": [1.0], "std": [2.0]}')
    quantised.metadata_props.add(key="names", value="{0: 'a', 1: 'b', 2: 'c'}")
    quantised.metadata_props.add(key="input", value='{"resize": "stretch"}')
    integers = [
        type(quantised).FromString(_exported("onnx", "int8", "onnxruntime", mode, ranges))
        for mode in ("affine", "symmetric")
        for ranges in ("dynamic", "calibrated")
    ]
    attention = []
    for form in ATTENTION:
        b = Builder(16)
        attention.append(b.model([form(b, b.conv("images", 8, 3, 2, act="Relu"))]))
    return [*seeds, *[quantised] * 8, *integers * 4, *attention * 4, *[build_model(form) for form in CHANNELS_LAST] * 2]


def _onnx(rng: random.Random, seeds: list[Any]) -> bytes:
    model = type(seeds[0])()
    model.CopyFrom(rng.choice(seeds))
    mutate_onnx(model, rng)
    return bytes(model.SerializeToString())


# TensorFlow Lite: the objects that flatbuffers' generated code unpacks to.


def _walk(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (object or list, attribute or index) of every value below an object."""
    keys: Any = range(len(holder)) if isinstance(holder, list) else vars(holder)
    for key in keys:
        value = holder[key] if isinstance(holder, list) else getattr(holder, key)
        yield holder, key
        if isinstance(value, list) or hasattr(value, "Pack"):
            yield from _walk(value)


def _change_value(rng: random.Random, old_value: Any, alternatives: list[Any]) -> Any:
    match old_value:
        case bool():
            return not old_value
        case int():
            return _number(rng, old_value)
        case float():
            return rng.choice(REALS)
        case bytes() | str():
            return rng.choice((b"", old_value[:3], old_value + old_value, b"\xff\n"))
        case np.ndarray() if old_value.size:
            values = (
                old_value.copy()
                if rng.random() < 0.8
                else np.concatenate([old_value, old_value])[: rng.randrange(2 * old_value.size + 1)]
            )
            if values.size:
                number = rng.choice(REALS) if values.dtype.kind == "f" else _number(rng, 3)
                with np.errstate(all="ignore"):
                    values.flat[rng.randrange(values.size)] = np.asarray(number, np.float64).astype(values.dtype)
            return values
        case list() if old_value:
            index = rng.randrange(len(old_value))
            return rng.choice((old_value[:index], old_value[index:], [*old_value, old_value[index]], old_value[::-1]))
    return copy.deepcopy(rng.choice(alternatives))


def mutate_tflite(model: Any, rng: random.Random) -> None:
    """Change some values of a ModelT in place."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        slots = list(_walk(model))
        holder, key = rng.choice(slots)
        old_value = holder[key] if isinstance(holder, list) else getattr(holder, key)
        same_type = [
            v for h, k in slots for v in [h[k] if isinstance(h, list) else getattr(h, k)] if type(v) is type(old_value)
        ]
        new_value = _change_value(rng, old_value, same_type) if rng.random() < 0.7 else copy.deepcopy(rng.choice(same_type))
        if isinstance(holder, list):
            holder[key] = new_value
        else:
            setattr(holder, key, new_value)


def _tflite_seeds() -> list[Any]:
    from ai_edge_litert import schema_py_generated as schema

    flavours = (("fp32", "litert", "affine"), ("int8", "armnn", "affine"), ("int8", "litert", "affine"))
    return [schema.ModelT.InitFromPackedBuf(_exported("tflite", *flavour), 0) for flavour in flavours]


def _exported(target: str, precision: str, flavour: str, mode: str, ranges: str = "calibrated") -> bytes:
    """Return a small network as mpnet writes it."""
    from mpnet.engine.assign import assign
    from mpnet.engine.options import resolve_options
    from mpnet.engine.prepare import Prepared
    from mpnet.export import Configuration, export
    from mpnet.formats.cfg.read import parse_cfg
    from mpnet.kernels.isa import kernels
    from mpnet.model.quantization import ActivationOptions, QuantizationOptions
    from mpnet.model.weights import random_weights
    from tests.fuzz.readers import MODEL

    network = parse_cfg(MODEL, "model.cfg")
    quantization = QuantizationOptions(ActivationOptions(mode=mode, ranges=ranges))
    options = resolve_options(network, quantization, ranges=dict.fromkeys(range(-1, len(network.layers)), (-3.0, 3.0)))
    configuration = Configuration.from_prepared(
        Prepared(network, random_weights(network, 3), kernels()), assign(network, precision), options
    )
    return export(target, configuration, flavour).content


def _tflite(rng: random.Random, seeds: list[Any]) -> bytes:
    import flatbuffers

    while True:
        model = copy.deepcopy(rng.choice(seeds))
        mutate_tflite(model, rng)
        builder = flatbuffers.Builder(4096)
        try:
            builder.Finish(model.Pack(builder), b"TFL3")
        except Exception:  # values that flatbuffers itself does not write
            continue
        return bytes(builder.Output())


KINDS: dict[str, tuple[Callable[[], list[Any]], Callable[[random.Random, list[Any]], bytes], str]] = {
    "onnx": (_onnx_seeds, _onnx, "onnx"),
    "tflite": (_tflite_seeds, _tflite, "ai_edge_litert"),
}


def available(kind: str) -> bool:
    """Return whether the package that a kind of file needs is here."""
    return importlib.util.find_spec(KINDS[kind][2]) is not None


class TooLong(BaseException):
    """An import that took more than its CPU time."""


def attempt(path: Path) -> str | None:
    """Return what is wrong with how an import ended; "": it was imported, None: it was refused."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        import_model(path)
        return ""
    except TooLong:
        return f"took more than {SECONDS} s"
    except MpnetError as error:
        text = str(error)
        if len(text.splitlines()) != 1 or not text.isprintable() or str(path) not in text or len(text) > 1500:
            return f"said {text[:300]!r}"
    except BaseException:  # this is what is looked for
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def hunt(kind: str, files: int, seed: int = 0, kept_folder: Path | None = None) -> int:
    """Mutate and import. Result: in how many places something was wrong; each is printed once."""

    def late(number: int, frame: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGPROF, late)
    make_seeds, mutated, _ = KINDS[kind]
    seeds = make_seeds()
    rng, failures, slowest, imported = random.Random(seed), dict[str, int](), 0.0, 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as space:
        path = Path(space) / f"m.{kind}"
        for number in range(files):
            content = mutated(rng, seeds)
            path.write_bytes(content)
            peak, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
            problem = attempt(path)
            slowest = max(slowest, time.process_time() - start)
            peak_now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            imported += problem == ""
            if not problem and peak_now > peak and peak_now * 1024 > MEMORY_BYTES:
                problem = f"takes {peak_now * 1024 / 1e6:.0f} MB"
            if not problem:
                continue
            key = "\n".join(problem.strip().splitlines()[-3:])[:600]
            if key not in failures:
                print(f"--- {kind} {number} of seed {seed}\n{problem[-1500:]}", flush=True)
                if kept_folder is not None:
                    kept_folder.mkdir(parents=True, exist_ok=True)
                    (kept_folder / f"{hashlib.sha1(content).hexdigest()[:12]}.{kind}").write_bytes(content)
            failures[key] = failures.get(key, 0) + 1
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(
        f"{kind}: {files} files from seed {seed}, {imported} imported, "
        f"{sum(failures.values())} wrong in {len(failures)} places, "
        f"slowest {slowest:.2f} s, at most {peak_mb:.0f} MB",
        flush=True,
    )
    return len(failures)


def main(arguments: list[str]) -> int:
    kept_folder = Path(arguments[arguments.index("--kept") + 1]) if "--kept" in arguments else None
    plain = arguments[: arguments.index("--kept")] if kept_folder else arguments
    return min(1, hunt(plain[0], int(plain[1]), int(plain[2]) if len(plain) > 2 else 0, kept_folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
