# SPDX-License-Identifier: MIT
"""Bundles in integers alone: what experiments gave, and files whose numbers could leave their bits."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

from mpnet.engine.assign import assign
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.export import Configuration
from mpnet.export.bundle.write import bundle_bytes
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels._core import ffi, lib
from mpnet.kernels.core import crc32c
from mpnet.kernels.interface import ACTIVATION_CODE
from mpnet.kernels.isa import kernels
from mpnet.model.quantization import QuantizationOptions
from mpnet.model.weights import random_weights
from mpnet.speed.latency_table import predicted_ms, read_table
from tests.backends.foreign_cases import CALIBRATED, configured, trained
from tests.engine.test_integer import EVERYTHING, options_of
from tests.mprun import cases
from tests.mprun.conftest import Program, mpnet

INTEGER_ONLY = ("--set", "quantization={activations: calibrated, integer_only: true}", "--set", "data.calibration.count=3")
INTEGER_OPTIONS = QuantizationOptions(integer_only=True)


def run_of(experiment: Path, precision: str) -> Path:
    """Return the folder of a run in integers alone."""
    return Path(
        json.loads(mpnet("run", experiment, *INTEGER_ONLY, "--set", f"precision={{default: {precision}}}", "--json"))["folder"]
    )


@pytest.mark.parametrize("precision", ["int8", "int16", "int8, layers: {heads: int16}"])
def test_evaluation_writes_the_file_of_a_run(mprun: Program, jpeg_experiment: Path, tmp_path: Path, precision: str) -> None:
    run, bundle = run_of(jpeg_experiment, precision), tmp_path / "net.mpnet"
    mpnet("export", run, "--to", "bundle", "-o", bundle)
    mprun(bundle, "--evaluate", jpeg_experiment.parent / "images", "-o", tmp_path / "detections.json")
    assert (tmp_path / "detections.json").read_bytes() == (run / "detections.json").read_bytes()
    assert len(json.loads((run / "detections.json").read_text(encoding="utf-8"))) > 5
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    info = json.loads(mprun(bundle, "--info", "--json").stdout)
    assert info["precision"] == result["precision"]["key"]
    assert info["arena_bytes"] == result["cost"]["arena_bytes"]


def test_bench_times_every_step(mprun: Program, jpeg_experiment: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "net.mpnet"
    mpnet("export", run_of(jpeg_experiment, "int8"), "--to", "bundle", "-o", bundle)
    steps = json.loads(mprun(bundle, "--bench", "--json", "--repeats", 2).stdout)["steps"]
    assert {step["step"].split()[0] for step in steps} >= {"IntegerConvolve", "IntegerQuantize", "Dequantize"}


@pytest.mark.parametrize(
    ("name", "key"), [("aix", "qqqqqqqiqqi"), ("aix", "i" * 11), ("fastest", "q" * 84), ("fastest", "qqi" * 28)]
)
def test_heads_of_trained_networks_equal_a_sessions(
    heads: Path, shared_data: Path, tmp_path: Path, name: str, key: str
) -> None:
    trained_configuration, batch = trained(shared_data, name, key, CALIBRATED, INTEGER_OPTIONS)
    (tmp_path / "net.mpnet").write_bytes(bundle_bytes(trained_configuration)[0])
    session = Session(trained_configuration.prepared, trained_configuration.plan)
    for number, image in enumerate(batch):
        image.tofile(tmp_path / f"{number}.input")
        expected = [head.tobytes() for head in session.forward(image[None])]
        (tmp_path / f"{number}.expected").write_bytes(b"".join(expected))
    lines = [f"{tmp_path}/net.mpnet {tmp_path}/{number}.input {tmp_path}/{number}.found\n" for number in range(len(batch))]
    (tmp_path / "list.txt").write_text("".join(lines), encoding="utf-8")
    subprocess.run([str(heads), "auto", "2", str(tmp_path / "list.txt")], check=True)
    assert cases.compare(tmp_path) == []


def test_the_table_is_one_that_sweeps_in_integers_take(mprun: Program, tmp_path: Path) -> None:
    keys = "q" * 5, "i" * 5, "qiqiq"
    configurations = [configured(cases.integer_only(), key, CALIBRATED, quantization=INTEGER_OPTIONS) for key in keys]
    (tmp_path / "net.mpnet").write_bytes(bundle_bytes(configurations[0])[0])
    words = (tmp_path / "net.mpnet", "--profile", "-o", tmp_path / "board.json", "--repeats", 1, "--threads", 1)
    completed = subprocess.run([str(word) for word in (mprun.path, *words)], capture_output=True, text=True, timeout=300)
    assert completed.returncode < 2, completed.stderr  # 1: the machine is too busy, which is not what is asked here
    table = read_table(tmp_path / "board.json")
    table.check(configurations[0].network, ("int8", "int16"), error=math.inf)
    assert len(table.checks) == 8
    for configuration in configurations:
        assert predicted_ms(configuration.plan, table.step_ms) > 0


def test_programs_that_cannot_be_scaled_are_left_out() -> None:
    """Layer 8 can be scaled from codes of 8 bits, not from those of 16."""
    network = parse_cfg(EVERYTHING, "net.cfg")
    prepared = Prepared(network, random_weights(network, 1), kernels())
    programs = []
    for ranges in ({}, {"layer_8": (-1e-6, 1e-6)}):
        configuration = Configuration.from_prepared(prepared, assign(network, "int8"), options_of(network, **ranges))
        programs.append(bundle_bytes(configuration)[1]["programs"])
    assert 1 < programs[1] < programs[0]


class BundleFile:
    """A bundle's records, to be changed in place."""

    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)
        self._start = ffi.from_buffer(self.content)
        self.header: Any = ffi.cast("mpb_header *", self._start)
        self.sections = ffi.cast("mpb_section *", self._start + ffi.sizeof("mpb_header"))

    def records(self, section: int, kind: str) -> list[Any]:
        """Return the records of a section."""
        row = self.sections[section]
        first_record = ffi.cast(f"{kind} *", self._start + row.at)
        return [first_record + number for number in range(row.bytes // ffi.sizeof(kind))]

    def bytes_of(self, piece: Any) -> Any:
        """Return a piece's numbers, as int32."""
        return ffi.cast("int32_t *", self._start + self.sections[lib.MPB_DATA].at + piece.at)

    def with_crcs(self) -> bytes:
        """Return the file with its CRCs made right."""
        pieces = [step.values for step in self.records(lib.MPB_STEPS, "mpb_step")]
        pieces += [convolution.bias for convolution in self.records(lib.MPB_CONVOLUTIONS, "mpb_convolution")]
        for piece in pieces:
            piece.crc = crc32c(ffi.buffer(self.bytes_of(piece), piece.bytes)) if piece.bytes else 0
        for number in range(lib.MPB_DATA):
            row = self.sections[number]
            row.crc = crc32c(ffi.buffer(self._start + row.at, row.bytes)) if row.bytes else 0
        self.header.crc = 0
        head = ffi.sizeof("mpb_header") + lib.MPB_SECTIONS * ffi.sizeof("mpb_section")
        self.header.crc = crc32c(bytes(self.content[:head]))
        return bytes(self.content)


def step_of(bundle: BundleFile, operation: int) -> Any:
    """Return the first step of an operation."""
    return next(step for step in bundle.records(lib.MPB_STEPS, "mpb_step") if step.operation == operation)


def rules_of(bundle: BundleFile, operation: int) -> Any:
    """Return the rules of that step."""
    return ffi.cast("mpb_integer_rules *", bundle.bytes_of(step_of(bundle, operation).values))


def set_rules(operation: str, **fields: Any) -> Callable[[BundleFile], None]:
    """Return a change of rules."""

    def change(bundle: BundleFile) -> None:
        rules = rules_of(bundle, getattr(lib, f"MPB_{operation}"))
        for name, value in fields.items():
            setattr(rules, name, value)

    return change


def set_channel(field: int, value: int) -> Callable[[BundleFile], None]:
    """Return a change of the first convolution's first bias (part 0), multiplier (1) or shift (2)."""

    def change(bundle: BundleFile) -> None:
        convolution = bundle.records(lib.MPB_CONVOLUTIONS, "mpb_convolution")[0]
        index = (field + convolution.bias_words - 1) * convolution.shape.out_c if field else 0
        bundle.bytes_of(convolution.bias)[index] = value

    return change


def set_record(**fields: int) -> Callable[[BundleFile], None]:
    """Return a change of the first convolution."""

    def change(bundle: BundleFile) -> None:
        for name, value in fields.items():
            setattr(bundle.records(lib.MPB_CONVOLUTIONS, "mpb_convolution")[0], name, value)

    return change


def dynamic_input(bundle: BundleFile) -> None:
    """Quantise the image by its own range, which nobody knows before."""
    step_of(bundle, lib.MPB_INTEGER_QUANTIZE).operation = lib.MPB_QUANTIZE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_rules("INTEGER_QUANTIZE", scale=0.0), "make no sense"),
        (set_rules("INTEGER_QUANTIZE", scale=float("inf")), "make no sense"),
        (set_rules("INTEGER_QUANTIZE", zero_point=128), "make no sense"),
        (set_rules("INTEGER_CONVOLVE", low=-129), "make no sense"),
        (set_rules("INTEGER_CONVOLVE", low=5, high=4), "make no sense"),
        (set_rules("INTEGER_CONVOLVE", leaky_high=1 << 20), "make no sense"),
        (set_rules("INTEGER_CONVOLVE", multiplier=[7, 1 << 30, 0]), "make no sense"),
        (set_rules("INTEGER_CONVOLVE", shift=[23, 0, 0]), "make no sense"),
        (set_channel(0, (1 << 31) - 1), "sums of channel 0 leave their bits"),
        (set_channel(0, -(1 << 31)), "factor or bias 0 makes no sense"),
        (set_channel(1, -5), "factor or bias 0 makes no sense"),
        (set_channel(2, 8), "factor or bias 0 makes no sense"),
        (set_record(activation=-1), "its precision or activation is unknown"),
        (set_record(activation=len(ACTIVATION_CODE)), "its precision or activation is unknown"),
        (set_record(activation=20), "IntegerConvolve: the kernel refused its arguments"),
        (set_record(bias_words=0), "its weights are of another arithmetic"),
        (set_record(bias_words=2), "its weights are of another arithmetic"),
        (set_record(bias_words=-1), "its weights are of another arithmetic"),
        (dynamic_input, "reads codes that are not known before"),
        (set_rules("INTEGER_ADD", shift=[1, 0, 0]), "IntegerAdd: the kernel refused its arguments"),
        (set_rules("INTEGER_ADD", multiplier=[1, 0, 0]), "IntegerAdd: the kernel refused its arguments"),
    ],
)
def test_numbers_that_could_leave_their_bits_are_refused_in_one_line(
    mprun: Program, images: Path, tmp_path: Path, change: Callable[[BundleFile], None], message: str
) -> None:
    configuration = configured(cases.integer_only(), "q", CALIBRATED, quantization=INTEGER_OPTIONS)
    bundle = BundleFile(bundle_bytes(configuration, profile=False)[0])
    assert BundleFile(bundle.with_crcs()).content == bundle.content
    change(bundle)
    (tmp_path / "net.mpnet").write_bytes(bundle.with_crcs())
    completed = mprun(tmp_path / "net.mpnet", images / "scene-0.jpg", check=2)
    assert message in completed.stderr
    assert completed.stderr.count("\n") == 1
