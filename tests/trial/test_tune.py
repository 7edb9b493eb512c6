# SPDX-License-Identifier: MIT
"""The story of a tuning, and experiments with weights that were tuned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpnet.config.experiment import Experiment, QuantizationSection
from mpnet.demo.dataset import write_dataset
from mpnet.errors import ConfigError, DataError, FormatError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.weights import read_weights
from mpnet.model.quantization import ActivationOptions, QuantizationOptions, WeightOptions
from mpnet.packages import version_of
from mpnet.trial.experiment import open_workbench, run_experiment
from mpnet.trial.tune import TuneReport, tune_experiment
from mpnet.trial.tuning_images import TuneOptions
from mpnet.trial.tuning_stages import CHANNELS, END_TO_END, RANGES, ROUNDING, SIGNS, STAGES, Proposal
from mpnet.tuning.record import read_tuning
from tests.conftest import DemoModel
from tests.networks import write_experiment, write_images

TRUNCATED = ["precision={default: int8}", "quantization={weights: per_channel, activations: {mode: power_of_two}}"]
"""Codes that are cut off: what a gain and an offset win back."""
TRAINED = QuantizationOptions(ActivationOptions(mode="power_of_two", rounding="half_to_even"), WeightOptions("per_tensor"))
ALONE = TuneOptions((CHANNELS,), apart=0.5)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 40 scenes that no other test evaluates on."""
    return write_dataset(tmp_path_factory.mktemp("scenes"), "train", 40) / "images"


@pytest.fixture(scope="module")
def demo(demo_model: DemoModel, tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    output = tmp_path_factory.mktemp("results")
    return replace(read_experiment(demo_model.experiment, TRUNCATED), output=output)


@pytest.fixture(scope="module")
def tuned(demo: Experiment, scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> TuneReport:
    folder = tmp_path_factory.mktemp("tuned")
    return tune_experiment(demo, scenes, folder / "tuned.yaml", ALONE, command="mpnet tune")


@pytest.mark.slow
def test_a_gain_is_written_with_what_it_was_made_of(tuned: TuneReport, demo: Experiment, scenes: Path) -> None:
    assert tuned.experiment is not None
    assert tuned.weights is not None
    assert tuned.document is not None
    assert [path.name for path in sorted(tuned.experiment.parent.iterdir())] == ["tuned.json", "tuned.weights", "tuned.yaml"]
    record = read_tuning(tuned.document)
    assert record == tuned.record
    assert (record.tuned_on, record.apart, len(record.images)) == (20, 20, 40)
    assert [(stage.stage, stage.kept) for stage in record.stages] == [(CHANNELS, True)]
    assert 0 < record.low <= record.gain == pytest.approx(record.agreement_after - record.agreement_before)
    experiment = read_experiment(tuned.experiment)
    network = open_workbench(demo).network
    assert read_weights(tuned.weights, network).digest == record.weights != record.parent
    assert experiment.model.parent == demo.model.weights
    document = tuned.as_json()
    assert document["kept"] is True
    assert document["files"] == {
        "experiment": str(tuned.experiment),
        "weights": str(tuned.weights),
        "record": str(tuned.document),
    }
    assert "images" not in document


@pytest.mark.slow
def test_a_run_of_it_agrees_with_the_parents_fp32(tuned: TuneReport, demo: Experiment) -> None:
    assert tuned.experiment is not None
    written = replace(read_experiment(tuned.experiment), output=demo.output)
    report = run_experiment(written)
    before = run_experiment(demo)
    assert report.baseline is not None
    assert before.baseline is not None
    assert report.own_baseline is not None
    assert report.baseline.metrics == before.baseline.metrics
    assert report.own_baseline.metrics != before.baseline.metrics
    for result in (report.result, report.own_baseline):
        assert result.run.agreement is not None
        assert result.run.agreement.baseline == report.baseline.id
    digests = report.result.run.digests
    assert digests["parent"] == tuned.record.parent == report.baseline.run.digests["weights"]
    assert "parent" not in report.baseline.run.digests
    # Without its parent it is another trial, compared with its own fp32.
    alone = run_experiment(replace(written, model=replace(written.model, parent=None, tuning=None)))
    assert alone.result.id != report.result.id
    assert alone.own_baseline is None
    assert run_experiment(written).reused


@pytest.mark.slow
def test_tuning_is_the_same_again(tuned: TuneReport, demo: Experiment, scenes: Path, tmp_path: Path) -> None:
    again = tune_experiment(demo, scenes, tmp_path / "tuned.yaml", ALONE)
    assert again.weights is not None
    assert tuned.weights is not None
    assert again.weights.read_bytes() == tuned.weights.read_bytes()


@pytest.mark.slow
def test_images_that_tuned_do_not_judge(tuned: TuneReport, scenes: Path) -> None:
    assert tuned.experiment is not None
    written = read_experiment(tuned.experiment, [f"data={{unlabelled: {scenes}}}"])
    with pytest.raises(
        ConfigError, match=r"40 of the images took part in tuning these weights .* cannot judge them: 00000.png"
    ):
        open_workbench(written)


@pytest.mark.slow
def test_weights_that_were_tuned_are_tuned_again_for_the_same_parent(
    tuned: TuneReport, demo: Experiment, tmp_path: Path
) -> None:
    assert tuned.experiment is not None
    others = write_dataset(tmp_path, "val", 40) / "images"
    for path in sorted(others.iterdir())[:12]:  # those that the demo evaluates
        path.unlink()
    written = replace(read_experiment(tuned.experiment), output=demo.output)
    again = tune_experiment(written, others, tmp_path / "again.yaml", ALONE)
    assert again.record.parent == tuned.record.parent
    assert set(again.record.images) > set(tuned.record.images)


@pytest.mark.slow
def test_ranges_that_cut_too_much_off_are_written_as_other_methods(demo: Experiment, scenes: Path, tmp_path: Path) -> None:
    cut = QuantizationOptions(ActivationOptions(ranges="calibrated", method="percentile", percentile=90))
    report = tune_experiment(
        replace(demo, quantization=QuantizationSection(cut)), scenes, tmp_path / "tuned.yaml", replace(ALONE, stages=(RANGES,))
    )
    assert report.experiment is not None
    assert report.record.low > 0
    # The weights are as they were, but for what folding rounds.
    assert report.record.own_fp32 > 99
    layers = read_experiment(report.experiment).quantization.layers
    assert layers
    assert all(options.activations.percentile != 90 for _, options in layers)


@pytest.mark.slow
def test_a_network_that_needs_nothing_gets_nothing(demo_model: DemoModel, scenes: Path, tmp_path: Path) -> None:
    fp16 = read_experiment(demo_model.experiment, ["precision={default: fp16}", f"output={tmp_path / 'runs'}"])
    report = tune_experiment(fp16, scenes, tmp_path / "tuned.yaml", ALONE)
    assert report.experiment is None
    assert not report.as_json()["kept"]
    assert report.record.weights == report.record.parent
    assert not (tmp_path / "tuned.yaml").exists()


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """Return a folder of 20 images beside those of the small experiment."""
    (tmp_path / "others").mkdir()
    write_images(tmp_path / "others", 20, seed=9)
    return tmp_path / "others" / "images"


def test_images_that_judge_do_not_tune(tmp_path: Path) -> None:
    experiment = read_experiment(write_experiment(tmp_path))
    with pytest.raises(ConfigError, match=r"5 of its 5 images are among those that .* evaluates, .*: scene-0.png"):
        tune_experiment(experiment, tmp_path / "images", tmp_path / "tuned.yaml")


def test_too_few_images_are_named(tmp_path: Path, others: Path) -> None:
    experiment = read_experiment(write_experiment(tmp_path))
    with pytest.raises(DataError, match=r"has 3 images; tuning takes at least 8"):
        tune_experiment(experiment, others, tmp_path / "tuned.yaml", TuneOptions(images=3))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: holds no images"):
        tune_experiment(experiment, tmp_path / "empty", tmp_path / "tuned.yaml")


def test_nothing_is_overwritten(tmp_path: Path, others: Path) -> None:
    experiment = read_experiment(write_experiment(tmp_path))
    for name in ("tuned.yaml", "tuned.weights", "tuned.json"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(ConfigError, match=f"{name}: is there already"):
            tune_experiment(experiment, others, tmp_path / "tuned.yaml")
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()
    with pytest.raises(ConfigError, match=r"tuned\.txt: what is written is an experiment file"):
        tune_experiment(experiment, others, tmp_path / "tuned.txt")


def test_words_that_are_no_stages_are_named(tmp_path: Path, others: Path) -> None:
    with pytest.raises(ConfigError, match=f"--stages: 'rows' is unknown; known are {', '.join(STAGES)}"):
        tune_experiment(read_experiment(write_experiment(tmp_path)), others, tmp_path / "t.yaml", TuneOptions(("rows",)))


def test_a_stage_whose_weights_are_not_finite_is_thrown_away(
    tmp_path: Path, others: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = STAGES[CHANNELS]

    def spoil(bench: object, *_: object) -> Proposal:
        proposal = fit(bench, *_)  # type: ignore[arg-type]
        first = min(proposal.folded)
        proposal.folded[first] = replace(proposal.folded[first], bias=np.full_like(proposal.folded[first].bias, np.nan))
        return proposal

    monkeypatch.setitem(STAGES, CHANNELS, spoil)
    report = tune_experiment(read_experiment(write_experiment(tmp_path)), others, tmp_path / "tuned.yaml", ALONE)
    (stage,) = report.record.stages
    assert (stage.kept, report.experiment) == (False, None)
    assert "layer 0 (conv-1): " in stage.note


def test_ctrl_c_before_anything_was_won_leaves_nothing(tmp_path: Path, others: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Proposal:
        raise KeyboardInterrupt

    monkeypatch.setitem(STAGES, CHANNELS, interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune_experiment(read_experiment(write_experiment(tmp_path)), others, tmp_path / "tuned.yaml", ALONE)
    assert not list(tmp_path.glob("tuned.*"))


@pytest.mark.slow
def test_ctrl_c_in_a_later_stage_keeps_what_earlier_ones_won(
    tuned: TuneReport, demo: Experiment, scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Proposal:
        raise KeyboardInterrupt

    monkeypatch.setitem(STAGES, ROUNDING, interrupted)
    report = tune_experiment(demo, scenes, tmp_path / "tuned.yaml", replace(ALONE, stages=(CHANNELS, ROUNDING)))
    assert report.is_interrupted
    assert report.weights is not None
    assert tuned.weights is not None
    assert report.weights.read_bytes() == tuned.weights.read_bytes()
    assert [stage.stage for stage in report.record.stages] == [CHANNELS]


def test_whole_numbers_alone_are_refused(tmp_path: Path, others: Path) -> None:
    experiment = read_experiment(
        write_experiment(tmp_path), ["quantization={integer_only: true, activations: calibrated}", f"output={tmp_path}"]
    )
    with pytest.raises(ConfigError, match="integer_only computes in whole numbers alone"):
        tune_experiment(experiment, others, tmp_path / "tuned.yaml")


def test_a_damaged_record_is_one_line(tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path)
    (tmp_path / "tuned.json").write_text(json.dumps({"format": "mpnet-tuning", "version": 1}))
    keys = "model={cfg: net.cfg, weights: net.weights, names: net.names, tuning: tuned.json"
    with pytest.raises(ConfigError, match=r"name their parent in model\.parent as well"):
        open_workbench(read_experiment(experiment, [keys + "}"]))
    with pytest.raises(ConfigError, match="a damaged record of mpnet tune: section 'created' is missing; tune again"):
        open_workbench(read_experiment(experiment, [keys + ", parent: net.weights}"]))
    with pytest.raises(FormatError, match=r"net\.cfg"):
        open_workbench(read_experiment(experiment, [keys.replace(", tuning: tuned.json", "") + ", parent: net.cfg}"]))


@pytest.mark.skipif(version_of("torch") is not None, reason="torch is installed")
def test_without_torch_one_line_says_what_the_training_needs(tmp_path: Path, others: Path) -> None:
    experiment = read_experiment(write_experiment(tmp_path))
    report = tune_experiment(experiment, others, tmp_path / "tuned.yaml")
    assert [stage.stage for stage in report.record.stages] == [SIGNS, RANGES, CHANNELS, ROUNDING]
    assert report.notes == ("stage end-to-end: needs torch; pip install --upgrade 'mpnet[tune]'",)
    with pytest.raises(ConfigError, match="stage end-to-end: needs torch"):
        tune_experiment(experiment, others, tmp_path / "other.yaml", TuneOptions((END_TO_END,)))


@pytest.mark.slow
@pytest.mark.skipif(
    version_of("torch") is None, reason="the stage end-to-end is tested where torch is: pip install 'mpnet[tune]'"
)
def test_a_training_lowers_the_loss_and_is_judged(demo: Experiment, scenes: Path, tmp_path: Path) -> None:
    options = replace(ALONE, stages=(END_TO_END,), steps=40)
    rounded = replace(demo, quantization=QuantizationSection(TRAINED))
    report = tune_experiment(rounded, scenes, tmp_path / "tuned.yaml", options)
    (stage,) = report.record.stages
    losses = [loss for _, loss in stage.details["watched_loss"]]  # type: ignore[misc, union-attr]
    assert min(losses) < 0.8 * losses[0]
    assert report.record.options["steps"] == stage.details["steps"] == 40
    assert stage.kept == (stage.low > 0) == (report.experiment is not None)
