# SPDX-License-Identifier: MIT
"""Experiment files: what they say, and what becomes of the ones that nobody should write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mpnet.config.experiment import AUTO_TIES, BLOCK_TIES, Experiment
from mpnet.errors import ConfigError
from mpnet.formats.documents.experiment import parse_experiment, read_experiment
from mpnet.formats.documents.yaml_tree import MAX_BYTES
from mpnet.model.keys import paths_of

FULL = """\
name: aix-mixed
model: {cfg: net.cfg, weights: net.weights, names: net.names}
data: {format: yolo, images: images/, labels: labels/, limit: 115}
detection: {resize: letterbox, confidence: 1e-3, nms: 0.45}
precision: {default: int8, layers: {0: fp16, "*/yolo-1": fp32}}
quantization:
  weights: per_channel
  activations: {mode: symmetric, ranges: calibrated, method: percentile, percentile: 99.99}
  layers: {heads: {activations: dynamic, weights: {granularity: per_tensor, method: mse}}}
sweep:
  strategy: exhaustive
  precisions: [fp32, int8]
  holdout: 0.5
  space: {layers: {first: fp32}, tied: [[conv-1, conv-2]], quantization: {activations.percentile: [99.9, 99.99]}}
  constraints: {ap_drop: 0.5}
  budget: {seconds: 60}
runtime: {threads: 2, isa: auto}
output: runs/
"""
MINIMAL = "name: a\nmodel: {cfg: n.cfg, weights: n.weights}\n"


def error_of(text: str | bytes, *overrides: str) -> str:
    """Return the message with which a file is refused."""
    with pytest.raises(ConfigError) as excinfo:
        parse_experiment(text, overrides, "x.yaml")
    return str(excinfo.value)


def test_all_keys_arrive() -> None:
    experiment = parse_experiment(FULL, base="/data")
    assert experiment.name == "aix-mixed"
    assert experiment.model.cfg == Path("/data/net.cfg")
    assert experiment.data is not None
    assert (experiment.data.labels, experiment.data.limit) == (Path("/data/labels"), 115)
    assert (experiment.detection.resize, experiment.detection.confidence) == ("letterbox", 0.001)
    assert experiment.precision.default == "int8"
    assert experiment.precision.layers == (("0", "fp16"), ("*/yolo-1", "fp32"))
    assert experiment.quantization.options.plain_values() == {
        "activations": {"mode": "symmetric", "ranges": "calibrated", "method": "percentile", "percentile": 99.99},
        "weights": {"granularity": "per_channel"},
    }
    [(selector, options)] = experiment.quantization.layers
    assert selector == "heads"
    assert options.plain_values() == {
        "activations": {"ranges": "dynamic"},
        "weights": {"granularity": "per_tensor", "method": "mse"},
    }
    assert experiment.sweep is not None
    assert experiment.sweep.space.layers == (("first", ("fp32",)),)
    assert experiment.sweep.space.tied == (("conv-1", "conv-2"),)
    assert [o.activations.percentile for o in experiment.sweep.space.quantization[0].options] == [99.9, 99.99]
    assert experiment.sweep.constraints.ap_drop == 0.5
    assert experiment.sweep.budget.seconds == 60
    assert (experiment.runtime.threads, experiment.output) == (2, Path("/data/runs"))


@pytest.mark.parametrize(
    ("text", "tied"),
    [
        ("auto", AUTO_TIES),
        ("blocks", BLOCK_TIES),
        ("none", ()),
        ("heads", (("heads",),)),
        ("[[0, 1], [2]]", (("0", "1"), ("2",))),
    ],
)
def test_ties_are_a_word_or_groups(text: str, tied: tuple[tuple[str, ...], ...]) -> None:
    sweep = parse_experiment(f"{MINIMAL}\nsweep: {{strategy: grid, space: {{tied: {text}}}}}").sweep
    assert sweep is not None
    assert sweep.space.tied == tied


def test_absent_sections_take_their_defaults() -> None:
    experiment = parse_experiment(MINIMAL)
    assert (experiment.data, experiment.sweep, experiment.runtime.threads) == (None, None, None)
    assert (experiment.detection.resize, experiment.detection.confidence, experiment.detection.nms) == (None, 0.005, 0.45)
    assert (experiment.detection.nms_kind, experiment.baseline, experiment.output) == (None, "fp32", Path("runs"))


def test_paths_count_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(MINIMAL, encoding="utf-8")
    assert read_experiment(tmp_path / "e.yaml").model.weights == tmp_path / "n.weights"


def test_options_overlay_only_what_they_say() -> None:
    experiment = parse_experiment(FULL)
    general_options, layer_options = experiment.quantization.options, experiment.quantization.layers[0][1]
    assert general_options.overlaid(layer_options).plain_values() == {
        "activations": {"mode": "symmetric", "ranges": "dynamic", "method": "percentile", "percentile": 99.99},
        "weights": {"granularity": "per_tensor", "method": "mse"},
    }


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("detection.nms=0.5", lambda e: e.detection.nms == 0.5),
        ("detection={nms: 0.6}", lambda e: e.detection.nms == 0.6 and e.detection.resize is None),
        ("precision.layers.3=fp16", lambda e: ("3", "fp16") in e.precision.layers),
        ("precision.layers.2..8=fp32", lambda e: ("2..8", "fp32") in e.precision.layers),
        ("precision.layers.*/yolo-1=int8", lambda e: ("*/yolo-1", "int8") in e.precision.layers),
        ("runtime.threads=auto", lambda e: e.runtime.threads is None),
        ("data.limit=null", lambda e: e.data.limit is None),
        ("data.calibration.count=8", lambda e: e.data.calibration.count == 8),
        ("baseline=none", lambda e: e.baseline is None),
        ("quantization.weights={method: mse}", lambda e: e.quantization.options.weights.method == "mse"),
    ],
)
def test_overrides_replace_what_the_file_says(override: str, expected: object) -> None:
    assert callable(expected)
    assert expected(parse_experiment(FULL, [override]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.yaml: is empty; see docs/experiments.md for the keys"),
        ("[1]", "x.yaml:1: the file is a list; it must hold `key: value` pairs"),
        ("name: a", "x.yaml:1: key 'model' is missing; see docs/experiments.md"),
        (MINIMAL + "detecton: {}", "x.yaml:3: unknown key 'detecton'; did you mean 'detection'?"),
        (MINIMAL + "detection:\n  resise: stretch", "x.yaml:4: unknown key 'resise' in 'detection'; did you mean 'resize'?"),
        (MINIMAL + "detection: {resize: streched}", "x.yaml:3: detection.resize is 'streched'; did you mean 'stretch'?"),
        (MINIMAL + "detection: {nms: .nan}", "x.yaml:3: detection.nms is '.nan'; it must be a number from 0 to 1"),
        (MINIMAL + "detection: {nms: nan}", "x.yaml:3: detection.nms is 'nan'; it must be a number from 0 to 1"),
        (MINIMAL + "detection: {confidence: 2}", "x.yaml:3: detection.confidence is '2'; it must be a number from 0 to 1"),
        (MINIMAL + "detection: {confidence: [1]}", "x.yaml:3: detection.confidence is a list; it must be one value"),
        (MINIMAL + "detection: {nms:}", "x.yaml:3: detection.nms has no value; give one or remove the key"),
        (MINIMAL + "runtime: {threads: 0}", "x.yaml:3: runtime.threads is '0'; it must be a whole number from 1 to 1024"),
        (MINIMAL + "runtime: {threads: 1e3}", "x.yaml:3: runtime.threads is '1e3'; it must be a whole number from 1 to 1024"),
        (MINIMAL + "precision: {default: int9}", "x.yaml:3: precision.default is 'int9'; did you mean 'int8'?"),
        (MINIMAL + "name: b", "x.yaml:3: key 'name' is given twice (first in line 1); keep one"),
        (
            "name: ../b\nmodel: {cfg: a, weights: b}",
            "x.yaml:1: name is '../b'; it names a folder: use up to 100 of letters, digits, '.', '_' and '-', the first a "
            "letter or digit",
        ),
        (MINIMAL + "data: {format: yolo, images: i}", "x.yaml:3: key 'data.labels' is missing; see docs/experiments.md"),
        (
            MINIMAL + "data: {format: coco, images: i, annotations: a, labels: l}",
            "x.yaml:3: data.labels does not go with format coco; remove it or change data.format",
        ),
        (
            MINIMAL + "quantization: {bias_correction: maybe}",
            "x.yaml:3: quantization.bias_correction is 'maybe'; it must be true or false",
        ),
        (
            MINIMAL + "sweep: {strategy: grid, precisions: [fp32, fp32]}",
            "x.yaml:3: sweep.precisions names 'fp32' twice; keep one",
        ),
        (MINIMAL + "sweep: {strategy: grid, precisions: []}", "x.yaml:3: sweep.precisions is an empty list; name at least one"),
        (
            MINIMAL + "sweep: {strategy: grid, space: {quantization: {activations.percentil: [1]}}}",
            "x.yaml:3: sweep.space.quantization varies 'activations.percentil'; did you mean 'activations.percentile'?",
        ),
        (MINIMAL + "output: &x runs", 'x.yaml:3: anchors and aliases (&, *) are not read; quote globs such as "*/yolo-1"'),
        (
            MINIMAL + "precision: {layers: {*/yolo-1: fp16}}",
            "x.yaml:3: is not valid YAML: expected alphabetic or numeric character, but found '/'; mend that line",
        ),
        (
            MINIMAL + "output: !!python/name:os.system x",
            "x.yaml:3: tag 'tag:yaml.org,2002:python/name:os.system' is not read; write the value plainly",
        ),
        (MINIMAL + "---\nname: b", "x.yaml:3: a second document starts here; an experiment is one document"),
        (MINIMAL + "? [a]\n: b", "x.yaml:3: a list or mapping stands where a key should; quote the key"),
        (b"name: \xff", "x.yaml:1: is not UTF-8 text; save it as UTF-8"),
        (b"name: a\nmodel: \x00", "x.yaml:2: character 0 is not allowed in YAML; remove it"),
    ],
)
def test_mistakes_are_named_with_their_line(text: str | bytes, message: str) -> None:
    assert error_of(text) == message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("detection.nms", "--set detection.nms: is not of the form key.key=value, such as detection.nms=0.5"),
        ("detection..nms=1", "--set detection..nms=1: is not of the form key.key=value, such as detection.nms=0.5"),
        ("detection.nsm=1", "--set detection.nsm=1: unknown key 'nsm' in 'detection'; did you mean 'nms'?"),
        ("detection.nms=7", "--set detection.nms=7: detection.nms is '7'; it must be a number from 0 to 1"),
        ("x" * 81, f"--set {'x' * 77}...: is not of the form key.key=value, such as detection.nms=0.5"),
        ("name.first=x", "--set name.first=x: 'name' holds one value in x.yaml:1; set it whole: --set 'name={...}'"),
    ],
)
def test_mistakes_in_overrides_are_named(override: str, message: str) -> None:
    assert error_of(MINIMAL, override) == message


def test_deep_nesting_is_refused_at_once() -> None:
    assert "nested more than 16 deep" in error_of("a: " + "[" * 200_000)


def test_many_values_are_refused() -> None:
    assert "holds more than 20000 values" in error_of("a: [" + "1," * 50_000 + "]")


def test_alias_bombs_are_refused() -> None:
    bomb = "a: &a [x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)},*{chr(97 + i)}]\n" for i in range(20))
    assert "anchors and aliases" in error_of(bomb)


def test_large_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="is larger than 262 kB; this is no experiment file"):
        read_experiment(path)


@pytest.mark.parametrize("name", ["missing.yaml", ".", "a\0b"])
def test_unreadable_paths_are_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as excinfo:
        read_experiment(tmp_path / name)
    assert "\n" not in str(excinfo.value)


def parse_or_refuse(data: str | bytes, *overrides: str) -> Experiment | None:
    """Parse; a refusal must be one line of reasonable length."""
    try:
        return parse_experiment(data, overrides, "x.yaml")
    except ConfigError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 1500
        return None


@given(st.binary(max_size=400))
@example(b"\xef\xbb\xbfname: a")
@example(b'"\\UFFFFFFFF"')
@example(b"%YAML 9.9\n---\n")
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    parse_or_refuse(data)


@given(st.text(alphabet="abn:{}[],-&*!|>'\"#%@`?\n\t 019.~<=\\\0é", max_size=120))
@settings(max_examples=150, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    parse_or_refuse(text)
    parse_or_refuse(MINIMAL, f"detection.nms={text}")
    parse_or_refuse(MINIMAL, text)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_mutations_of_a_valid_file_are_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(FULL.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(raw)))
        length = data.draw(st.integers(0, 12))
        raw[start : start + length] = data.draw(st.binary(max_size=6))
    experiment = parse_or_refuse(bytes(raw))
    if experiment is not None:
        assert 0 <= experiment.detection.nms <= 1


def test_every_key_is_documented(repository: Path) -> None:
    rows = [
        line
        for line in (repository / "docs" / "experiments.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    documented = set(re.findall(r"`\.?([A-Za-z0-9_.]+)`", "\n".join(row.split("|")[1] for row in rows)))
    # Those of quantisation stand below their section, with a dot before them.
    undocumented = [
        path for path in paths_of(Experiment) if path not in documented and path.rpartition(".")[2] not in documented
    ]
    assert undocumented == []
