# SPDX-License-Identifier: MIT
"""Whether two source trees give the same results: identities, detections, measures, stores and exported files.

    python tools/same_results.py BEFORE AFTER [--folder FOLDER] [--python PYTHON]

BEFORE and AFTER are checkouts with a built C core that nobody edits meanwhile. Each runs the same command lines on the same
small networks and images, in a folder of its own; a table says what was compared, then every difference, and the exit status is
1 where there is one. What may differ is left out: times, dates, versions and the words of messages (LEFT_OUT).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import importlib
import io
import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Iterator

import yaml

# What a sweep executed: how many configurations share a chunk follows from measured times, so it depends on the machine's load.
WORK_DONE = ("forward_equivalents", "forward_equivalents_store", "work")
# Keys of documents, columns of tables and tables of stores, wherever they stand: times, dates and who computed; then words and
# paths.
LEFT_OUT = {
    *("created", "command", "versions", "latency", "seconds", "seconds_store", "time", "owner", "heartbeat", "ms", "doubt"),
    *(
        "threads",
        "scratch_bytes",
        "intervals_by",
        "summary",
        "became",
        "warnings",
        "warning",
        "why",
        "what",
        "reason",
        "reasons",
    ),
    *("note", "notes", "message", "path", "file", "files", "page", "title", "html", "report", "bytes"),
    *WORK_DONE,
}
QUICK = "runtime.threads=1"
SCENES = 10
NARROW = {"default": "int4", "layers": {"first": "int8", "heads": "int6"}}
# name: overrides of the demo's experiment file (int8 per tensor, first layer and heads in fp16) or of the classifier's.
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "fp32": {"precision": {"default": "fp32"}},
    "mixed": {},
    "winograd": {
        "precision": {"default": "fp32_winograd", "layers": {"heads": "fp32", "conv-3": "int8"}},
        "detection.resize": "letterbox",
    },
    "halves": {
        "precision": {"default": "bf16", "layers": {"2..8": "fp16_half", "conv-6": "fp16", "heads": "int8"}},
        "detection.nms_kind": "diounms",
        "detection.max_detections": 20,
    },
    "calibrated": {
        "precision": {"default": "int8"},
        "quantization": {
            "weights": {"method": "mse"},
            "activations": {"ranges": "calibrated", "method": "percentile", "percentile": 99.9},
            "layers": {"heads": {"activations": "dynamic"}},
        },
        "data.calibration": {"count": 6, "seed": 3},
    },
    "corrected": {
        "precision": {"default": "int8"},
        "quantization": {
            "activations": {"mode": "symmetric", "ranges": "calibrated", "method": "entropy"},
            "bias_correction": True,
            "equalisation": True,
        },
        "data.calibration": {"count": 4},
    },
    "powers": {
        "precision": {"default": "int8"},
        "quantization": {
            "activations": {"mode": "power_of_two", "ranges": "calibrated", "method": "moving_average"},
            "weights": {"method": "power_of_two", "granularity": "per_tensor"},
        },
        "data.calibration": {"count": 4},
        "model.batch_norm": "alexeyab",
    },
    "tensorflow": {
        "precision": {"default": "int8"},
        "quantization": {"activations": {"mode": "MIN_COMBINED"}, "weights": "per_tensor"},
        "model.dialect": "alexeyab",
    },
    "narrow": {
        "precision": NARROW,
        "quantization": {"narrow": {"granularity": "per_group"}},
        "data.calibration": {"count": 3},
        "data.limit": 4,
    },
    "nearest": {
        "precision": {"default": "int5", "layers": {"trunk": "int3", "first": "int8"}},
        "quantization": {"narrow": {"rounding": "nearest", "method": "min_max"}, "weights": "per_channel"},
        "data.limit": 4,
    },
}
CLASSIFIER = """\
name: shapes
model: {cfg: shapes.cfg, weights: shapes.weights, names: shapes.names}
data: {format: imagefolder, images: val/}
precision: {default: int8, layers: {first: fp16}}
quantization: {activations: {mode: symmetric}, weights: per_tensor}
output: runs/
"""
# name: experiment file, overrides. One process each, so that the order of work is always the same.
SWEEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "exhaustive": ("small/experiment.yaml", {"strategy": "exhaustive", "precisions": "[fp32, fp16, int8]"}),
    "additive": (
        "demo/demo.yaml",
        {"strategy": "additive", "budget.trials": 45, "objectives": "[agreement_AP, AP, bit_operations]"},
    ),
    "greedy": ("tiny/experiment.yaml", {"strategy": "greedy", "holdout": 0, "constraints.ap_drop": 0.5, "budget.trials": 60}),
    "exact_front": ("small/experiment.yaml", {"strategy": "exact_front", "objectives": "[agreement_AP, weight_bytes]"}),
    "classifier": ("shapes.yaml", {"strategy": "one_at_a_time", "precisions": "[fp32, int8, int4]"}),
}


class Journal:
    """What one tree gave: facts by group and name, written as JSON for the comparison.

    main: the tree's command line, called in this process, since a new interpreter takes longer than most calls.
    folders: paths that texts of documents may begin with, and what stands for them.
    """

    def __init__(self, main: Callable[[list[str]], None], folders: dict[str, str]) -> None:
        self.main = main
        self.folders = folders
        self.facts: dict[str, dict[str, Any]] = {}

    def add(self, group: str, name: str, value: Any) -> None:
        """Note a fact; value: anything JSON can hold, without what LEFT_OUT names."""
        text = json.dumps(comparable(value))
        for folder, stand_in in self.folders.items():
            text = text.replace(folder, stand_in)
        self.facts.setdefault(group, {})[name] = json.loads(text)

    def call(self, group: str, name: str, *arguments: str) -> Any:
        """Call `mpnet ARGUMENTS...`; note its exit status and its JSON document, which is returned (None: there is none)."""
        status, stdout = 0, io.StringIO()
        sys.argv = ["mpnet", *arguments]
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(io.StringIO()) as stderr:
            try:
                self.main(list(arguments))
            except SystemExit as ended:
                status = int(ended.code or 0)
        document = json.loads(stdout.getvalue()) if "--json" in arguments and status < 2 else None
        self.add(group, name, {"status": status, "document": document})
        if status not in (0, 1) and group != "exports" and group != "imports":
            raise SystemExit(f"mpnet {' '.join(arguments)}: status {status}: {stderr.getvalue()}")
        return document

    def files(self, group: str, name: str, folder: Path, pattern: str = "**/*") -> None:
        """Note all files below a folder: documents and stores by content, everything else by digest."""
        for path in sorted(path for path in folder.glob(pattern) if path.is_file() and path.stem != "time"):
            self.add(group, f"{name}/{path.relative_to(folder)}", content_of(path))


def comparable(value: Any) -> Any:
    """Return a document without what may differ; texts that hold a document (notes of a store) as that document."""
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items() if key not in LEFT_OUT and not key.endswith("_ms")}
    if isinstance(value, (list, tuple)):
        return [comparable(item) for item in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        with contextlib.suppress(ValueError):
            return comparable(json.loads(value))
    return value


def content_of(path: Path) -> Any:
    """Read a JSON or YAML document, the rows of a CSV file or of a store's tables; of other files the SHA-256 digest."""
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    if path.suffix in (".yaml", ".yml"):
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))
    if path.suffix == ".sqlite":
        return rows_of(path)
    if path.suffix == ".mpnet":
        return sections_of(path.read_bytes())
    if path.name == "back.cfg":  # what an import wrote; its comments are words
        return [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sections_of(bundle: bytes) -> dict[str, str]:
    """Return the digest of each section of a bundle (docs/bundle.md) but texts and origin: these hold paths and dates."""
    count = struct.unpack_from("<I", bundle, 12)[0]
    table = [struct.unpack_from("<QQ", bundle, 32 + 24 * number) for number in range(count)]
    return {
        str(number): hashlib.sha256(bundle[offset : offset + length]).hexdigest()
        for number, (offset, length) in enumerate(table)
        if number not in (9, 10)
    }


def rows_of(path: Path) -> dict[str, list[Any]]:
    """Every table of a store as its rows in order; of names and values those that may differ are left out by their name."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        rows = {table: [dict(row) for row in db.execute(f'SELECT * FROM "{table}" ORDER BY 1, 2')] for table in tables}
    # Notes are rows of a name and a value; as a mapping, notes that may differ (`created`) are left out like keys.
    return {
        table: [{row["name"]: row["value"]} if set(row) == {"name", "value"} else row for row in table_rows]
        for table, table_rows in rows.items()
    }


def overrides(settings: dict[str, Any], prefix: str = "") -> list[str]:
    """Return settings as `--set KEY=VALUE` arguments; JSON is YAML."""
    texts = ((key, value if isinstance(value, str) else json.dumps(value)) for key, value in settings.items())
    return [argument for key, value in texts for argument in ("--set", f"{prefix}{key}={value}")]


def write_journal(tree: Path, folder: Path) -> None:
    """Run everything with the tree's mpnet in the folder and write facts.json there."""
    sys.path[:0] = [str(tree)]
    os.environ["MPNET_CACHE"] = str(folder / "cache")
    os.chdir(folder)
    from mpnet.cli.main import main
    from mpnet.demo.project import write_project
    from tests.networks import small_cfg, tiny_cfg, write_experiment

    is_in_tests = (tree / "tests/classifier/crops.py").exists()
    crops = importlib.import_module("tests.classifier.crops" if is_in_tests else "mpnet.demo.crops")
    journal = Journal(main, {str(tree): "TREE", str(folder): "FOLDER"})
    write_project("demo", SCENES)
    crops.write_imagefolder(Path(), "val", SCENES)
    for suffix in ("cfg", "weights", "names"):
        shutil.copy(tree / f"tests/classifier/shapes.{suffix}", ".")
    Path("shapes.yaml").write_text(CLASSIFIER, encoding="utf-8")
    for name, text in (("small", small_cfg()), ("tiny", tiny_cfg())):
        Path(name).mkdir()
        write_experiment(Path(name), text)
    for name in ("demo", "small", "tiny", "val"):
        journal.files("inputs", name, Path(name))
    runs = {name: run_experiment(journal, name, "demo/demo.yaml", settings) for name, settings in EXPERIMENTS.items()}
    runs["classifier"] = run_experiment(journal, "classifier", "shapes.yaml", {})
    compare_and_report(journal, runs)
    for name in ("mixed", "calibrated", "narrow", "classifier"):
        export_all(journal, name, runs[name])
    import_back(journal)
    for name, (experiment, settings) in SWEEPS.items():
        run_sweep(journal, name, experiment, settings)
    (folder / "facts.json").write_text(json.dumps(journal.facts), encoding="utf-8")


def run_experiment(journal: Journal, name: str, experiment: str, settings: dict[str, Any]) -> str:
    """Run one experiment; note its result and detections, and return the folder of the result."""
    settings_arguments = overrides({"name": name, "output": "../runs" if "/" in experiment else "runs", **settings})
    document = journal.call("experiments", name, "run", experiment, *settings_arguments, "--set", QUICK, "-q", "--json")
    journal.files("experiments", name, Path("runs") / name)
    journal.files("experiments", "calibration", Path("runs/calibration"))
    return f"runs/{name}/{document['id']}"


def compare_and_report(journal: Journal, runs: dict[str, str]) -> None:
    """Comparisons, a report's data, analyses, what `show` and `detect` print, and the file that `init` writes."""
    journal.call("commands", "compare", "compare", runs["fp32"], runs["mixed"], runs["calibrated"], "--json", "-q")
    journal.call("commands", "compare classifiers", "compare", runs["classifier"], runs["classifier"], "--json", "-q")
    page = ("-o", "report.html", "--data", "report")
    journal.call("commands", "report", "report", runs["fp32"], runs["mixed"], *page, "--draws", "200", "--json", "-q")
    journal.files("commands", "report", Path("report"))
    for name in ("mixed", "narrow", "classifier"):
        journal.call("commands", f"analyze {name}", "analyze", runs[name], "--images", "2", "--json", "-q")
        journal.call("commands", f"show {name}", "show", runs[name], "--json")
        journal.call("commands", f"steps {name}", "show", runs[name], "--steps", "--json")
    image = "demo/val/images/00002.png"
    journal.call("commands", "detect", "detect", runs["calibrated"], image, "--json", "-q")
    journal.call("commands", "beside", "detect", runs["mixed"], image, "--beside", "fp32", "--json", "-q")
    model = "demo/model/demo"
    journal.call(
        "commands",
        "init",
        *f"init --cfg {model}.cfg --names {model}.names --images demo/val/images -o init.yaml --json".split(),
    )
    journal.call("commands", "init's file", "run", "init.yaml", "--set", "data.limit=2", "--set", QUICK, "-q", "--json")


def export_all(journal: Journal, name: str, result_folder: str) -> None:
    """Export a result to every target in every flavour, and with boxes; refusals count by their exit status."""
    targets = journal.call("exports", "targets", "targets", "--json")["targets"]
    for target, description in targets.items():
        for flavour in description["flavours"] or [""]:
            for options in ([], ["--with-boxes"], ["--packed", "avx2,scalar"]):
                if options and options[0][2:].replace("-", "_") not in description["options"]:
                    continue
                label = "-".join(filter(None, (target, flavour, *options[:1])))
                folder = Path("exports") / name / label
                folder.mkdir(parents=True)
                arguments = ["--to", target, *(["--flavour", flavour] if flavour else []), *options]
                journal.call(
                    "exports",
                    f"{name} {label}",
                    "export",
                    result_folder,
                    *arguments,
                    "-o",
                    str(folder / f"net{description['suffix']}"),
                )
                journal.files("exports", f"{name} {label}", folder)


def import_back(journal: Journal) -> None:
    """Import what was exported to ONNX and TensorFlow Lite, in floating point and quantised."""
    for path in sorted(Path("exports").glob("*/*/net.onnx")) + sorted(Path("exports").glob("*/*/net.tflite")):
        label = f"{path.parent.parent.name} {path.parent.name}"
        folder = Path("imports") / label.replace(" ", "-")
        journal.call("imports", label, "import", str(path), "-o", str(folder), "--name", "back", "--json")
        if folder.is_dir():
            journal.files("imports", label, folder)


def run_sweep(journal: Journal, name: str, experiment: str, settings: dict[str, Any]) -> None:
    """Run a sweep; note its document and all rows of its store."""
    store = f"sweeps/{name}.sqlite"
    Path("sweeps").mkdir(exist_ok=True)
    arguments = [*overrides({"name": name}), *overrides(settings, "sweep."), "--set", QUICK]
    journal.call("sweeps", name, "sweep", experiment, *arguments, "--store", store, "--workers", "1", "--yes", "-q", "--json")
    journal.files("sweeps", name, Path("sweeps"), f"{name}.sqlite")


def differences(old_value: Any, new_value: Any, path: str = "") -> Iterator[str]:
    """Each value that differs, as `path: old value -> new value`."""
    if isinstance(old_value, dict) and isinstance(new_value, dict):
        for key in sorted({*old_value, *new_value}):
            yield from differences(
                old_value.get(key, "(nothing)"), new_value.get(key, "(nothing)"), f"{path}.{key}" if path else key
            )
    elif isinstance(old_value, list) and isinstance(new_value, list) and len(old_value) == len(new_value):
        for number, (old, new) in enumerate(zip(old_value, new_value, strict=True)):
            yield from differences(old, new, f"{path}[{number}]")
    elif old_value != new_value:
        yield f"{path}: {str(old_value)[:90]} -> {str(new_value)[:90]}"


def leaves(value: Any) -> int:
    """How many values a document holds."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 1 if items is None else sum(map(leaves, items))


def compare(facts_before: dict[str, dict[str, Any]], facts_after: dict[str, dict[str, Any]], limit: int = 8) -> int:
    """Print a table and the differences (at most `limit` of a name); return their number."""
    count = Counter[str]()
    lines = []
    for group in sorted({*facts_before, *facts_after}):
        old_facts, new_facts = facts_before.get(group, {}), facts_after.get(group, {})
        for name in sorted({*old_facts, *new_facts}):
            lines_of_name = list(
                differences(old_facts.get(name, "(nothing)"), new_facts.get(name, "(nothing)"), f"{group}: {name}")
            )
            count[group] += len(lines_of_name)
            lines += lines_of_name[:limit] + (
                [f"{group}: {name}: and {len(lines_of_name) - limit} more"] if len(lines_of_name) > limit else []
            )
    print(f"{'':12} {'names':>6} {'values':>8} {'differ':>7}")
    for group, facts in facts_before.items():
        print(f"{group:12} {len(facts):6} {leaves(facts):8} {count[group]:7}")
    print(*lines, sep="\n", end="\n" if lines else "")
    return sum(count.values())


def continued(tree: Path, folder: Path, python: str) -> bool:
    """Whether AFTER knows a finished sweep in BEFORE's folder, and computes nothing of it again."""
    experiment, settings = SWEEPS["exhaustive"]
    arguments = [*overrides({"name": "exhaustive"}), *overrides(settings, "sweep."), "--set", QUICK]
    command = [python, "-m", "mpnet", "sweep", experiment, *arguments, "--store", "sweeps/exhaustive.sqlite", "--workers", "1"]
    process = subprocess.run(
        [*command, "-q", "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    return process.returncode == 0 and json.loads(process.stdout)["computed"] == 0


def main() -> int:
    """Run both trees at once, in folders of their own, and compare what they gave."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trees", nargs=2, metavar="TREE", type=Path, help="BEFORE and AFTER: checkouts with a built core")
    parser.add_argument("--folder", type=Path, help="where to work; replaced [default: a temporary one]")
    parser.add_argument("--python", default=sys.executable, help="interpreter for both [default: this one]")
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    before, after = (tree.resolve() for tree in options.trees)
    if options.write:
        write_journal(before, after)
        return 0
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folders = [folder.resolve() / name for name in ("1", "2")]  # equally long: places in bundles count texts
        for path in folders:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
        # BEFORE may be older than this file: each tree is run by this file, in a process that finds that tree's modules.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONPATH", None)
        processes = [
            subprocess.Popen([options.python, __file__, str(tree), str(path), "--write"], env=environment, cwd=path)
            for tree, path in zip((before, after), folders, strict=True)
        ]
        if any([process.wait() for process in processes]):
            print("a tree failed; what it said stands above", file=sys.stderr)
            return 2
        count = compare(*(json.loads((path / "facts.json").read_text(encoding="utf-8")) for path in folders))
        is_resumable = continued(after, folders[0], options.python)
    print("a sweep of BEFORE is " + ("known" if is_resumable else "NOT known") + " to AFTER")
    print("the same" if not count and is_resumable else f"{count} values differ")
    return 1 if count or not is_resumable else 0


if __name__ == "__main__":
    sys.exit(main())
