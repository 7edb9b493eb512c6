# SPDX-License-Identifier: MIT
"""The best mixes at average sizes of weights, from a sweep's store.

python experiments/best_mixes.py experiments/aix-below-eight.yaml runs/aix-below-eight/latest.sqlite

Bits are of stored weights over their number, multipliers of groups included, biases and one scale per channel not.
"""

from __future__ import annotations

import sys

from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.documents.experiment import read_experiment
from mpnet.sweep.store import Trial, TrialStore

AVERAGES = (8, 7, 6.5, 6, 5.5, 5, 4.75, 4.5, 4.25, 4.125, 4, 3.75, 3.5, 3)
MEASURES = ("agreement_AP", "AP")


def main(experiment: str, path: str) -> None:
    """Print, for each context of the store, size and measure, the best that the sweep tried."""
    layers = read_cfg(read_experiment(experiment).model.cfg).convolutions
    count, constant = sum(layer.weight_count for layer in layers), 8 * sum(layer.filters for layer in layers)

    def bits(trial: Trial) -> float:
        return (trial.get("weight_bytes") - constant) * 8 / count

    with TrialStore.read(path) as store:
        for context, document in store.contexts().items():
            trials = list(store.trials(context))
            narrow, held = document["identity"]["options"].get("narrow", {}), document["measures"]["holdout"]
            print(f"\n{len(trials)} trials, narrow: {narrow}, {document['options']} held out: {held:.0%}")
            for average in AVERAGES:
                for measure in MEASURES:
                    fitting = [trial for trial in trials if bits(trial) <= average]
                    if not fitting:
                        continue
                    best = max(fitting, key=lambda trial: (trial.get(measure), -bits(trial)))
                    names = [name for name in (*MEASURES, *(f"held_out_{m}" for m in MEASURES)) if name in best.values]
                    figures = [f"{name} {best.get(name):.2f}" for name in names]
                    print(f"at most {average:5}  by {measure:12}  {best.key}  {bits(best):.2f} bits  {'  '.join(figures)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
