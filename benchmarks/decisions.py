# SPDX-License-Identifier: MIT
"""Which layers do quantisers leave in floating point, and what are their choices worth on images that did not choose?

    python benchmarks/decisions.py mpnet EXPERIMENT.yaml FOLDER/                     # picks and front of an additive sweep
    python benchmarks/decisions.py analyze EXPERIMENT.yaml FOLDER/                   # what `analyze` raises
    python benchmarks/decisions.py nncf EXPERIMENT.yaml FOLDER/ [--drop 2]           # accuracy control; --drop 0: plain
    python benchmarks/decisions.py aimet EXPERIMENT.yaml FOLDER/ [--drop 0.3]        # automatic mixed precision
    python benchmarks/decisions.py onnxruntime EXPERIMENT.yaml FOLDER/ [--drop 2]    # layers by the error of their weights
    python benchmarks/decisions.py judge EXPERIMENT.yaml FOLDER/ [--others IMAGES/]
    python benchmarks/decisions.py table FOLDER/...                                # one table of all folders

Each tool runs in an environment of its own that has it and mpnet's packages. It sees the first --images of the experiment's
labelled images, as mpnet prepares them, and the same network as fp32 ONNX; what it leaves in float goes to FOLDER/*.json.
`judge` runs every choice in mpnet's int8 and fp32 on the choosing images and on the others: one arithmetic for all, so that
choices are compared and not quantisers. Passes are of one image. --drop is points of agreement (of AP with --measure AP).
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.api import open_workbench, read_experiment
from mpnet.detection.preprocess import geometry_array
from mpnet.engine.assign import assign_key
from mpnet.engine.cost import plan_cost
from mpnet.export import export
from mpnet.export.naming import layer_of
from mpnet.trial.identity import configuration_of
from mpnet.trial.inference import run_plans
from mpnet.trial.workbench import Workbench

AT_ONCE = 8
Heads = list[NDArray[np.float32]]
"""Output tensors (n, h, w, c) of a network, one a head."""


def open_float_workbench(experiment: Path, overrides: Sequence[str] = ()) -> Workbench:
    """Open the experiment with all layers in fp32 unless a plan says otherwise."""
    return open_workbench(read_experiment(experiment, ["precision={default: fp32}", *overrides]))


@dataclass
class Judge:
    """Measures any program's output tensors on the choosing images as mpnet measures its own."""

    bench: Workbench
    passes: int = 0
    log: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        batches = list(self.bench.inputs.batches(4))
        self.x = np.concatenate([batch.x for batch in batches]).transpose(0, 3, 1, 2)
        self.geometry = geometry_array([geometry for batch in batches for geometry in batch.geometry])
        self.baseline = fp32_predictions(self.bench)
        self.meter = self.bench.kit.meter(self.bench.dataset, self.baseline)

    def values(self, heads: Heads) -> dict[str, float]:
        """AP and agreement of all choosing images."""
        decoder = self.bench.decoder
        decoded = [decoder.join([decoder.decode(i, np.ascontiguousarray(h), self.geometry)]) for i, h in enumerate(heads)]
        values = self.meter.values(decoder.predictions(decoded), ())
        self.log.append({name: round(values[name], 3) for name in ("AP", "agreement_AP")})
        return values

    def run(self, forward: Callable[[NDArray[np.float32]], Sequence[NDArray[np.float32]]], images: Any = None) -> Heads:
        """Heads of some images (all by default), one at a time."""
        images = self.x if images is None else images
        outputs = [forward(np.ascontiguousarray(image[None])) for image in images]
        self.passes += len(outputs)
        return [np.concatenate(head).transpose(0, 2, 3, 1) for head in zip(*outputs, strict=True)]

    @property
    def calibration(self) -> NDArray[np.float32]:
        """32 of the choosing images, evenly spread."""
        return self.x[np.linspace(0, len(self.x) - 1, min(32, len(self.x))).astype(int)]


def float_model(bench: Workbench) -> bytes:
    """Return the network in fp32 as ONNX."""
    return export("onnx", configuration_of(bench, bench.uniform("fp32"))).content


def choose_mpnet(bench: Workbench, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the picks of a sweep on the choosing images, and its front of bit operations and the loss to expect elsewhere."""
    from mpnet.sweep.choose.expected_loss import expected_losses
    from mpnet.sweep.problem.front import non_dominated
    from mpnet.sweep.run import run_sweep
    from mpnet.sweep.store import TrialStore

    precisions, objectives = ", ".join(options.precisions), "agreement_AP, AP, bit_operations"
    sweep = f"sweep={{strategy: {options.strategy}, precisions: [{precisions}], objectives: [{objectives}], holdout: 0}}"
    experiment = read_experiment(options.experiment, [*options.overrides, sweep, f"output={options.folder / 'runs'}"])
    result = run_sweep(experiment)
    passes = result.trials * result.images
    with TrialStore.read(Path(result.store)) as store:
        trials = list(store.trials(1))
    expected = expected_losses(trials, "agreement_AP", 100.0)
    rows = [{"choice": name, "key": row.precision, "passes": passes} for name, row in result.picks.items()]
    costs = np.array([[trial.get("bit_operations"), loss] for trial, loss in zip(trials, expected, strict=True)])
    for index in non_dominated(costs):
        rows.append(
            {"choice": "front", "key": trials[int(index)].key, "passes": passes, "expected": float(expected[int(index)])}
        )
    return rows


SHARES = (2, 5, 10, 15, 20, 25, 30, 37, 45, 55, 65, 80)
"""Percent of the MACs that `mpnet analyze` may raise."""


def choose_analyze(bench: Workbench, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the layers that `mpnet analyze` raises from int8 to fp16."""
    from mpnet.diagnose.analyze import analyze_experiment

    experiment = read_experiment(options.experiment, [*options.overrides, "precision={default: int8}"])
    rows = []
    for share in SHARES:
        proposal = analyze_experiment(experiment, keep_macs_percent=share).proposal
        raised = {layer.layer for layer in proposal.layers}
        key = "".join("h" if layer.index in raised else "q" for layer in bench.network.convolutions)
        rows.append({"choice": f"{share} % of MACs", "key": key, "passes": 0})
    return rows


def choose_nncf(bench: Workbench, options: argparse.Namespace) -> list[dict[str, Any]]:
    """NNCF's quantisation, plain or under control of accuracy, for OpenVINO on this CPU."""
    import nncf
    import openvino as ov

    judge, core = Judge(bench), ov.Core()
    core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    model = core.read_model(float_model(bench))
    calibration = nncf.Dataset([image[None] for image in judge.calibration])
    # OpenVINO's int8 saturates on CPUs without VNNI unless weights keep to seven bits.
    parameters = nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix.ENABLE)
    common = {"preset": nncf.QuantizationPreset.MIXED, "subset_size": len(judge.calibration)}
    if options.drop == 0:
        quantised = nncf.quantize(model, calibration, advanced_parameters=parameters, **common)
    else:

        def validate(compiled: Any, images: Any) -> tuple[float, None]:
            heads = judge.run(lambda x: [value.copy() for value in compiled(x).to_tuple()], [i[0] for i in images])
            return judge.values(heads)[options.measure], None

        quantised = nncf.quantize_with_accuracy_control(
            model,
            calibration,
            nncf.Dataset([image[None] for image in judge.x]),
            validate,
            max_drop=options.drop,
            drop_type=nncf.DropType.ABSOLUTE,
            advanced_quantization_parameters=parameters,
            advanced_accuracy_restorer_parameters=nncf.AdvancedAccuracyRestorerParameters(ranking_subset_size=len(judge.x)),
            **common,
        )

    def in_codes(value: Any, steps: int = 6) -> bool:
        node = value.get_node()
        kind = node.get_type_name()
        if kind == "FakeQuantize":
            return True
        if kind == "Constant":
            return node.get_element_type().to_string() in ("i8", "u8")
        return steps > 0 and kind in ("Reshape", "Convert", "Multiply", "Subtract") and in_codes(node.input_value(0), steps - 1)

    kinds = ("Convolution", "GroupConvolution")
    operations = [op for op in quantised.get_ops() if op.get_type_name() in kinds]
    float_layers = {layer_of(op.get_friendly_name()) for op in operations if not in_codes(op.input_value(1))}
    return [
        describe_choice(
            bench,
            float_layers,
            judge,
            f"accuracy control, {options.measure} drop {options.drop:g}" if options.drop else "plain",
        )
    ]


def choose_aimet(bench: Workbench, options: argparse.Namespace) -> list[dict[str, Any]]:
    """AIMET's automatic mixed precision of int8 and float16."""
    import onnx
    from aimet_onnx.common.defs import CallbackFunc, QuantizationDataType, QuantScheme
    from aimet_onnx.mixed_precision import choose_mixed_precision
    from aimet_onnx.quantsim import QuantizationSimModel

    judge = Judge(bench)
    model = onnx.load_model_from_string(float_model(bench))
    [image], outputs = model.graph.input, [output.name for output in model.graph.output]
    simulated = QuantizationSimModel(
        model, param_type="int8", activation_type="int8", quant_scheme=QuantScheme.min_max, providers=["CPUExecutionProvider"]
    )

    def forward(session: Any) -> Callable[[NDArray[np.float32]], Sequence[NDArray[np.float32]]]:
        return lambda x: session.run(outputs, {image.name: x})

    probe_images = judge.calibration[:12]
    reference = judge.run(forward(float_session(bench)), probe_images)

    def sqnr(session: Any, *_: Any) -> float:
        heads = judge.run(forward(session), probe_images)
        noise = np.mean([((a - b) ** 2).sum() / (b**2).sum() for a, b in zip(heads, reference, strict=True)])
        return float(min(150, -10 * np.log10(noise + 1e-15)))

    def accuracy(session: Any, *_: Any) -> float:
        return judge.values(judge.run(forward(session)))[options.measure] / 100

    def calibrate(session: Any, *_: Any) -> None:
        judge.run(forward(session), judge.calibration)

    simulated.compute_encodings(calibrate)
    floats, codes = QuantizationDataType.float, QuantizationDataType.int
    folder = options.folder / "aimet"
    folder.mkdir(parents=True, exist_ok=True)
    choose_mixed_precision(
        simulated,
        [((16, floats), (16, floats)), ((8, codes), (8, codes))],
        CallbackFunc(sqnr),
        CallbackFunc(accuracy),
        options.drop / 100,
        str(folder),
        True,
        CallbackFunc(calibrate),
        use_all_amp_candidates=True,
        phase1_optimize=False,
    )
    float_layers = set()
    for operation in simulated.connected_graph.get_all_ops().values():
        if operation.type in ("Conv", "Convolution"):
            weight = simulated.get_op_quantizers(operation)[2].get("weight")
            if weight is None or not weight.enabled or weight.data_type == floats or weight.bitwidth == 16:
                float_layers.add(layer_of(operation.name))
    return [describe_choice(bench, float_layers, judge, f"automatic mixed precision, {options.measure} drop {options.drop:g}")]


def float_session(bench: Workbench) -> Any:
    """Open the fp32 network in ONNX Runtime."""
    import onnxruntime

    return onnxruntime.InferenceSession(float_model(bench), providers=["CPUExecutionProvider"])


def choose_onnxruntime(bench: Workbench, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Choose by ONNX Runtime's static quantisation.

    Layers are excluded by the error of their weights, as its debugger ranks them, until agreement is lost by no more than the
    drop.
    """
    import onnx
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, qdq_loss_debug, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    judge = Judge(bench)
    options.folder.mkdir(parents=True, exist_ok=True)
    plain, prepared, quantised = (options.folder / f"onnxruntime-{name}.onnx" for name in ("float", "prepared", "int8"))
    plain.write_bytes(float_model(bench))
    quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
    model = onnx.load(prepared)
    name = model.graph.input[0].name
    convolutions = [node.name for node in model.graph.node if node.op_type == "Conv"]

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.images = iter(judge.calibration)

        def get_next(self) -> dict[str, Any] | None:
            image = next(self.images, None)
            judge.passes += image is not None
            return None if image is None else {name: np.ascontiguousarray(image[None])}

    def values(excluded: Sequence[str]) -> dict[str, float]:
        quantize_static(
            str(prepared),
            str(quantised),
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,  # without VNNI its int8 saturates
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=list(excluded),
        )
        session = onnxruntime.InferenceSession(str(quantised), providers=["CPUExecutionProvider"])
        return judge.values(judge.run(lambda x: session.run(None, {name: x})))

    now = values([])
    matched = qdq_loss_debug.create_weight_matching(str(prepared), str(quantised))
    errors = qdq_loss_debug.compute_weight_error(matched)
    weight_of = {node.name: node.input[1] for node in model.graph.node if node.op_type == "Conv"}
    # The debugger says how many decibels a weight keeps: the least first.
    ranked = sorted(convolutions, key=lambda node: errors.get(weight_of[node], 0.0))
    rows = [describe_choice(bench, set(), judge, "static quantisation")]
    excluded: list[str] = []
    fp32 = {"agreement_AP": 100.0, "AP": judge.meter.values(judge.baseline, ())["AP"]}[options.measure]
    while fp32 - now[options.measure] > options.drop and len(excluded) < len(ranked):
        excluded = ranked[: len(excluded) + 1]
        now = values(excluded)
    float_layers = {layer_of(node) for node in excluded}
    return [*rows, describe_choice(bench, float_layers, judge, f"by error of weights, {options.measure} drop {options.drop:g}")]


def fp32_predictions(bench: Workbench) -> Any:
    """Return what fp32 finds."""
    return run_plans(bench, [bench.plan(bench.uniform("fp32"))])[0].predictions


def describe_choice(bench: Workbench, float_layers: set[int | None], judge: Judge, choice: str) -> dict[str, Any]:
    """Describe a choice by the layers that stay in float."""
    key = "".join("f" if layer.index in float_layers else "q" for layer in bench.network.convolutions)
    return {"choice": choice, "key": key, "passes": judge.passes, "validations": judge.log}


TOOLS = {
    "mpnet": choose_mpnet,
    "analyze": choose_analyze,
    "nncf": choose_nncf,
    "aimet": choose_aimet,
    "onnxruntime": choose_onnxruntime,
}


def judge_choices(options: argparse.Namespace) -> None:
    """Run the choices of a folder and write FOLDER/judged.json.

    They run on the images that chose, then, on the others, the tools' choices and what mpnet's front has at no more bit
    operations.
    """
    rows = read_choices(options.folder)
    overrides = [f"data.unlabelled={json.dumps(str(options.others.absolute()))}"] if options.others else []
    everything = open_float_workbench(options.experiment, [*options.overrides, *overrides])
    images, labelled = len(everything.dataset.images), everything.dataset.labelled_count
    choosing_count = min(options.images or labelled, labelled)
    document: dict[str, Any] = {
        "images": {"choosing": choosing_count, "others": images - choosing_count},
        "labelled": labelled,
        "keys": {},
    }
    judged = document["keys"]
    for name, positions in (("choosing", range(choosing_count)), ("others", range(choosing_count, images))):
        if not positions:
            continue
        bench = everything.of_images(positions)
        baseline = fp32_predictions(bench)
        meter, loss = bench.kit.meter(bench.dataset, baseline), bench.kit.loss(bench.dataset, baseline)
        choices = [row["key"] for row in rows if name == "choosing" or row["choice"] != "front"]
        rivals = [best_of_front(rows, judged, key) for key in choices] if name == "others" else []
        keys = list(dict.fromkeys(key for key in [*choices, *rivals] if key is not None))
        for start in range(0, len(keys), AT_ONCE):
            batch = keys[start : start + AT_ONCE]
            plans = [bench.plan(assign_key(bench.network, key)) for key in batch]
            for key, plan, outcome in zip(batch, plans, run_plans(bench, plans), strict=True):
                values, quality = meter.values(outcome.predictions, ()), loss(outcome.predictions).quality
                row = judged.setdefault(key, {"bit_operations": float(plan_cost(plan)["bit_operations"])})
                row[name] = {
                    "agreement_AP": values["agreement_AP"],
                    "AP": values["AP"],
                    "AP_change": None if quality is None else [quality.difference, quality.low, quality.high],
                }
            print(f"{name}: {min(start + AT_ONCE, len(keys))} of {len(keys)}", file=sys.stderr)
            (options.folder / "judged.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


def best_of_front(rows: Sequence[Mapping[str, Any]], judged: Mapping[str, Any], key: str) -> str | None:
    """Return what mpnet's front has at no more bit operations than a key: that of which the least loss is to be expected."""
    affordable = [row for row in rows if row["choice"] == "front" and cost_of(judged, row["key"]) <= cost_of(judged, key)]
    return str(min(affordable, key=lambda row: row["expected"])["key"]) if affordable else None


def cost_of(judged: Mapping[str, Any], key: str) -> float:
    """Return the bit operations of a key."""
    return float(judged[key]["bit_operations"])


def read_choices(folder: Path) -> list[dict[str, Any]]:
    """All choices of a folder, each with its tool."""
    return [
        {"tool": path.stem.split("-")[1], **row}
        for path in sorted(folder.glob("choice-*.json"))
        for row in json.loads(path.read_text(encoding="utf-8"))
    ]


def print_table(folders: Sequence[Path]) -> None:
    """One row a choice, and what mpnet's front has at no more bit operations, both on the images that did not choose."""
    headings = ("network", "tool", "choice", "in float", "bit operations, % of fp32", "agreement where it chose", "on others")
    headings += ("mpnet's front there", "AP on others: its change", "mpnet's front's", "passes", "CPU s")
    print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    for folder in folders:
        document = json.loads((folder / "judged.json").read_text(encoding="utf-8"))
        rows, judged = read_choices(folder), document["keys"]
        fp32_operations = 16 * judged["q" * len(rows[0]["key"])]["bit_operations"]  # 32 by 32 bits beside 8 by 8
        for row in rows:
            if row["choice"] == "front":
                continue
            best = best_of_front(rows, judged, row["key"])
            judgement, best_judgement = judged[row["key"]], judged.get(best, {})
            cells = [folder.name, row["tool"], row["choice"], str(sum(code != "q" for code in row["key"]))]
            cells += [
                f"{100 * judgement['bit_operations'] / fp32_operations:.1f}",
                f"{judgement['choosing']['agreement_AP']:.2f}",
            ]
            cells += [
                f"{item['others']['agreement_AP']:.2f}" if "others" in item else "" for item in (judgement, best_judgement)
            ]
            changes = [item.get("others", {}).get("AP_change") for item in (judgement, best_judgement)]
            cells += ["" if change is None else "{:+.2f} ({:+.2f} to {:+.2f})".format(*change) for change in changes]
            print(f"| {' | '.join(cells)} | {row['passes']:,} | {row['cpu_seconds']:.0f} |")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=[*TOOLS, "judge", "table"])
    parser.add_argument("paths", type=Path, nargs="+", help="EXPERIMENT.yaml FOLDER/; for table one FOLDER/ or more")
    parser.add_argument("--drop", type=float, default=2.0)
    parser.add_argument("--measure", choices=("agreement_AP", "AP"), default="agreement_AP")
    parser.add_argument("--images", type=int, help="how many of the labelled images choose, the first by name")
    parser.add_argument("--others", type=Path, help="a folder of further images without labels, for judge")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--precisions", nargs="+", default=["fp32", "int8"], help="of mpnet's sweep")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    options = parser.parse_args()
    if options.task == "table":
        print_table(options.paths)
        return
    options.experiment, options.folder = options.paths
    if options.task == "judge":
        judge_choices(options)
        return
    if options.images:
        options.overrides.append(f"data.limit={options.images}")
    bench = open_float_workbench(options.experiment, options.overrides)
    cpu_before, start = cpu_seconds(), time.monotonic()
    rows: list[Mapping[str, Any]] = TOOLS[options.task](bench, options)
    cost = {"cpu_seconds": round(cpu_seconds() - cpu_before, 1), "seconds": round(time.monotonic() - start, 1)}
    options.folder.mkdir(parents=True, exist_ok=True)
    name = f"{options.task}-{options.measure}-{options.drop:g}" if options.task != "mpnet" else f"mpnet-{options.strategy}"
    text = json.dumps([{**row, **cost} for row in rows], indent=1)
    (options.folder / f"choice-{name}.json").write_text(text, encoding="utf-8")
    print(f"{name}: " + ", ".join(f"{row['choice']} {row['key']}" for row in rows if row["choice"] != "front"))


def cpu_seconds() -> float:
    """Of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
