# SPDX-License-Identifier: MIT
"""What a sweep knows before its first trial."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from mpnet.formats.documents.experiment import read_experiment
from mpnet.model.weights import random_weights
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.work_chunks import WorkChunk
from mpnet.sweep.problem.space import OptionSet, build_space
from mpnet.sweep.setup import make_context, section_of, set_up
from mpnet.trial.experiment import open_workbench, with_network
from tests.networks import write_experiment

_SWEEP = "sweep={strategy: exhaustive, precisions: [fp32, int8]}"


def test_an_option_set_may_bring_weights_of_its_own(tmp_path: Path) -> None:
    """Its trials have another identity, and the figures of an experiment with these weights."""
    experiment, network = with_network(read_experiment(write_experiment(tmp_path), [_SWEEP]))
    bench, section = open_workbench(experiment, network), section_of(experiment)
    tuned = replace(random_weights(network, 9), digest="9" * 64)
    plain = build_space(network, section.precisions, section.space)
    space = replace(plain, option_sets=(OptionSet(), OptionSet("weights=tuned", weights=tuned)))
    setup = set_up(bench, section, space)
    assert [document["identity"]["weights"] for document in setup.documents] == [bench.weights.digest, tuned.digest]
    assert (setup.subject, setup.store_path) == (
        set_up(bench, section, plain).subject,
        set_up(bench, section, plain).store_path,
    )
    keys = tuple(space.drawn_keys(4))
    with ExitStack() as stack:
        evaluator = Evaluator(make_context(setup, stack, 1, remote=False))
        for options, weights in enumerate((bench.weights, tuned)):
            alone = set_up(replace(bench, weights=weights), section, plain)
            expected = Evaluator(make_context(alone, stack, 1, remote=False)).evaluate(WorkChunk(0, keys)).trials
            for trial, reference_trial in zip(evaluator.evaluate(WorkChunk(options, keys)).trials, expected, strict=True):
                # The baseline has the experiment's weights, whichever the others have.
                names = [name for name in trial.values if options == 0 or not re.search("agreement|sqnr", name)]
                assert {name: trial.values[name] for name in names} == {name: reference_trial.values[name] for name in names}
