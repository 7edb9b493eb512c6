# SPDX-License-Identifier: MIT
"""Evaluated units against configurations that are run and measured one by one."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from mpnet.config.measures import MAX_SQNR_DB, trial_costs
from mpnet.data.detections import Detections
from mpnet.detection.decode import decode_head
from mpnet.detection.nms import suppress
from mpnet.engine.assign import assign_key
from mpnet.engine.cost import plan_cost
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.evaluation.agreement import Agreement
from mpnet.evaluation.metrics import CocoEvaluator, darknet_ap50, darknet_map50
from mpnet.kernels.isa import kernels
from mpnet.model.precision import BASE_NAMES, FP16
from mpnet.model.weights import random_weights
from mpnet.sweep.evaluate import stem_cache
from mpnet.sweep.evaluate.context import SweepContext
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.scoring import Noise, heads_sqnr_db, split_positions
from mpnet.sweep.evaluate.sharing import forward_equivalents_of
from mpnet.sweep.evaluate.work_chunks import WorkChunk
from mpnet.sweep.problem.front import Rivals
from mpnet.sweep.problem.space import build_space
from tests.sweep.sweep_data import context, with_baseline
from tests.sweep.sweep_networks import branches, tiny_yolo

DETECTION_FIELDS = ("image_index", "category", "score", "box")


def direct(sweep_context: SweepContext, key: str, options: int = 0) -> tuple[Detections, list[np.ndarray]]:
    """Run one configuration, one image at a time, through the ordinary session."""
    option_set = sweep_context.options[options]
    session = Session(
        Prepared(sweep_context.network, option_set.weights, kernels()),
        build_plan(sweep_context.network, assign_key(sweep_context.network, key), option_set.engine),
    )
    heads = [
        np.concatenate(tensors)
        for tensors in zip(
            *(session.forward(sweep_context.images[i : i + 1]) for i in range(len(sweep_context.images))), strict=True
        )
    ]
    detections = [
        decode_head(tensor, head, sweep_context.geometry, sweep_context.decoder.confidence)  # type: ignore[attr-defined]
        for tensor, head in zip(heads, sweep_context.decoder.heads, strict=True)  # type: ignore[attr-defined]
    ]
    return suppress(detections, sweep_context.dataset.sizes, sweep_context.decoder.nms), heads  # type: ignore[attr-defined]


@pytest.mark.parametrize("network", [tiny_yolo(), branches()], ids=["tiny_yolo", "branches"])
@pytest.mark.parametrize("options", [0, 1])
def test_a_trial_is_what_a_direct_run_gives(network: object, options: int) -> None:
    sweep_context = with_baseline(context(network))
    keys = tuple(random.Random(6).sample(list(build_space(network, BASE_NAMES).all_keys()), 12))
    trials = Evaluator(sweep_context).evaluate(WorkChunk(options, keys)).trials
    baseline, base_heads = direct(sweep_context, "f" * len(keys[0]))
    assert len(baseline) > 20
    for key, trial in zip(keys, trials, strict=True):
        detections, heads = direct(sweep_context, key, options)
        expected = dict(CocoEvaluator(sweep_context.dataset).evaluate(detections, sizes=False).summary)
        expected["darknet_mAP50"] = darknet_map50(darknet_ap50(detections, sweep_context.dataset))
        agreement = Agreement(baseline, sweep_context.dataset.sizes, 3).measure(detections)
        expected.update({f"agreement_{name}": agreement[name] for name in ("AP", "AP75", "AP95")})
        plan = build_plan(network, assign_key(network, key), sweep_context.options[options].engine)
        expected.update(
            {name: plan_cost(plan)[name] for name in ("weight_bytes", "peak_activation_bytes", "bit_operations", "int8_macs")}
        )
        sqnr = trial.values["head_sqnr_db"]
        assert {**trial.values, "head_sqnr_db": 0} == {**expected, "head_sqnr_db": 0}
        ratios = [
            np.square(a.astype(np.float64) - b).sum() / np.square(b.astype(np.float64)).sum()
            for a, b in zip(heads, base_heads, strict=True)
        ]
        assert sqnr == pytest.approx(min(150.0, -10 * np.log10(max(np.mean(ratios), 1e-15))), abs=1e-3)


def test_what_layers_without_weights_say_is_part_of_the_key() -> None:
    sweep_context = context(tiny_yolo(), unweighted={1: FP16})
    keys = ("fqfqfq+1:h", "qqqqqq+1:h")
    for key, trial in zip(keys, Evaluator(sweep_context).evaluate(WorkChunk(0, keys)).trials, strict=True):
        plan = build_plan(sweep_context.network, assign_key(sweep_context.network, key), sweep_context.options[0].engine)
        assert (trial.key, plan.precision.key) == (key, key)
        assert {name: trial.values[name] for name in trial_costs() if name in trial.values} == {
            name: plan_cost(plan)[name] for name in trial_costs() if name in plan_cost(plan)
        }
        second, once = Evaluator(sweep_context).predictions(0, key), direct(sweep_context, key)[0]
        assert all(np.array_equal(getattr(second, name), getattr(once, name)) for name in DETECTION_FIELDS)


def test_detections_can_be_had_again_bit_by_bit() -> None:
    sweep_context = context(tiny_yolo())
    for key in ("ffffff", "qhfqfq"):
        second, once = Evaluator(sweep_context).predictions(1, key), direct(sweep_context, key, 1)[0]
        assert all(np.array_equal(getattr(second, name), getattr(once, name)) for name in DETECTION_FIELDS)


def test_two_weights_share_nothing() -> None:
    """Units of both in turn, which begin alike, in one evaluator: plain ones, and those that race against rivals."""
    sweep_context = context(branches())
    plain, tuned = sweep_context.options[0], replace(sweep_context.options[0], weights=random_weights(sweep_context.network, 4))
    shared_context = with_baseline(replace(sweep_context, options=(plain, tuned)))
    keys = tuple(build_space(sweep_context.network, ("fp32", "int8")).all_keys())
    chunks = [keys[start : start + 8] for start in range(0, 32, 8)]
    shared = Evaluator(shared_context)
    rivals = Rivals(("agreement_AP", "bit_operations"), ((-50.0, shared.costs(0, keys[16])["bit_operations"]),))
    for unit_rivals in (None, rivals):
        units = [WorkChunk(options, chunk, unit_rivals) for chunk in chunks for options in (0, 1)]
        results = [shared.evaluate(unit) for unit in units]
        assert any(result.ruled_out for result in results) == (unit_rivals is not None)
        alone = [Evaluator(shared_context), Evaluator(shared_context)]
        expected = [alone[unit.options].evaluate(unit) for unit in units]
        assert [(r.trials, r.ruled_out) for r in results] == [(r.trials, r.ruled_out) for r in expected]
    for options in (0, 1):
        predictions, once = shared.predictions(options, keys[5]), direct(shared_context, keys[5], options)[0]
        assert all(np.array_equal(getattr(predictions, name), getattr(once, name)) for name in DETECTION_FIELDS)
    assert shared.evaluate(WorkChunk(0, keys[:1])).trials != shared.evaluate(WorkChunk(1, keys[:1])).trials


@pytest.mark.parametrize("group", [1, 3, 100])
def test_the_size_of_groups_changes_nothing(group: int) -> None:
    sweep_context = with_baseline(context(tiny_yolo(), group=2))
    other_context = with_baseline(context(tiny_yolo(), group=group))
    unit = WorkChunk(0, ("ffffff", "qhfqfq", "qqqqqq"))
    assert Evaluator(other_context).evaluate(unit).trials == Evaluator(sweep_context).evaluate(unit).trials


def test_neighbours_in_a_unit_change_nothing() -> None:
    evaluator = Evaluator(with_baseline(context(tiny_yolo())))
    keys = tuple(build_space(tiny_yolo(), ("fp32", "int8")).all_keys())
    together = evaluator.evaluate(WorkChunk(0, keys)).trials
    assert [evaluator.evaluate(WorkChunk(0, (key,))).trials[0] for key in keys[::7]] == list(together[::7])


def test_work_is_counted_for_all_images() -> None:
    network = tiny_yolo()
    assert Evaluator(context(network, images=5)).evaluate(WorkChunk(0, ("ffffff",))).macs == 5 * network.macs


def test_the_baseline_agrees_with_itself() -> None:
    trial = Evaluator(with_baseline(context(tiny_yolo()))).evaluate(WorkChunk(0, ("ffffff",))).trials[0]
    assert trial.values["agreement_AP"] == pytest.approx(100)
    assert trial.values["head_sqnr_db"] == MAX_SQNR_DB


def test_without_a_baseline_there_is_no_agreement() -> None:
    trial = Evaluator(context(tiny_yolo())).evaluate(WorkChunk(0, ("ffffff",))).trials[0]
    assert not [name for name in trial.values if name.startswith(("agreement", "head_sqnr"))]


def test_held_out_images_are_measured_apart() -> None:
    sweep_context = context(tiny_yolo(), images=9)
    select, report = split_positions([image.sha256 for image in sweep_context.dataset.images], 0.4, seed=7)
    assert sorted([*select, *report]) == list(range(9))
    assert len(report) == 4
    trial = (
        Evaluator(with_baseline(replace(sweep_context, select=select, report=report)))
        .evaluate(WorkChunk(0, ("qqqqqq",)))
        .trials[0]
    )
    detections = direct(sweep_context, "qqqqqq")[0]
    baseline = direct(sweep_context, "ffffff")[0]
    for prefix, positions in (("", select), ("held_out_", report)):
        data = sweep_context.dataset.subset(positions.tolist())
        expected = CocoEvaluator(data).evaluate(detections.of_images(positions), sizes=False).summary
        assert {name: trial.values[prefix + name] for name in expected} == expected
        agreement = Agreement(baseline.of_images(positions), data.sizes, 3).measure(detections.of_images(positions))
        assert trial.values[f"{prefix}agreement_AP"] == agreement["AP"]


def test_which_images_are_held_out_depends_on_them_alone() -> None:
    ids = [f"{i:064x}" for i in range(50)]
    held_out = {ids[i] for i in split_positions(ids, 0.5, 3)[1]}
    backwards = ids[::-1]
    assert {backwards[i] for i in split_positions(backwards, 0.5, 3)[1]} == held_out
    assert {ids[i] for i in split_positions(ids, 0.5, 4)[1]} != held_out
    assert len(held_out) == 25


@pytest.mark.parametrize(("count", "share", "expected"), [(10, 0.0, 0), (1, 0.5, 0), (2, 0.9, 1), (3, 0.01, 1)])
def test_no_part_is_ever_empty_by_accident(count: int, share: float, expected: int) -> None:
    select, report = split_positions([str(i) for i in range(count)], share, 0)
    assert (len(select), len(report)) == (count - expected, expected)


def test_each_head_counts_by_its_own_ratio() -> None:
    heads = [Noise(np.array([100.0, 100.0]), np.array([1.0, 1.0])), Noise(np.array([1.0, 1.0]), np.array([0.0, 0.0]))]
    assert heads_sqnr_db(heads, np.arange(2)) == pytest.approx(10 * np.log10(200))
    assert heads_sqnr_db(heads[1:], np.arange(2)) == MAX_SQNR_DB


@pytest.mark.parametrize("size", [3, 8])
@pytest.mark.parametrize("limit", [0, 80_000, 1 << 30])
@pytest.mark.parametrize("group", [1, 100])
def test_parts_have_the_bits_of_a_whole_unit(limit: int, group: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all fits in memory and cuts follow the trie, nothing is repeated; under two option sets in turn."""
    monkeypatch.setattr(stem_cache, "CACHED_BYTES", limit)
    sweep_context = with_baseline(context(tiny_yolo(), group=group))
    keys = tuple(build_space(tiny_yolo(), ("fp32", "int8")).all_keys())
    chunks = [keys[i : i + size] for i in range(0, len(keys), size)]
    evaluator, work = Evaluator(sweep_context), sweep_context.network.macs * len(sweep_context.geometry)
    for options in (0, 1):
        unit_result = Evaluator(sweep_context).evaluate(WorkChunk(options, keys))
        chunk_results = [evaluator.evaluate(WorkChunk(options, some)) for some in chunks]
        assert tuple(trial for chunk_result in chunk_results for trial in chunk_result.trials) == unit_result.trials
        executed, cached_macs = (
            sum(chunk_result.macs for chunk_result in chunk_results),
            sum(chunk_result.cached_macs for chunk_result in chunk_results),
        )
        assert executed + cached_macs == work * sum(forward_equivalents_of(sweep_context.network, some) for some in chunks)
        assert (cached_macs > 0) == (limit > 0)
        assert (executed == unit_result.macs) == (limit > 80_000 and size == 8)
