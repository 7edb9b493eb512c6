# SPDX-License-Identifier: MIT
"""The network of an experiment, ready to run on any image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpnet.api.network import Network, prepare_network
from mpnet.engine.assign import assign
from mpnet.engine.devices import open_runtime
from mpnet.engine.options import resolve_options
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.labels.class_names import class_names
from mpnet.model.precision import INT8

if TYPE_CHECKING:
    from mpnet.config.experiment import Experiment


def network_of(experiment: Experiment) -> Network:
    """Return the network of an experiment at its precisions, quantised as it says; images are read only for calibration.

    Raises: as `load_network`; as `open_workbench` where calibration images are needed.
    """
    model, quantization, runtime = experiment.model, experiment.quantization, experiment.runtime
    spec = read_cfg(model.cfg, model.dialect)
    names = class_names(spec, model.names, experiment.data)
    options = resolve_options(spec, quantization.options, quantization.layers, batch_norm=model.batch_norm)
    precisions = assign(spec, experiment.precision.default, dict(experiment.precision.layers))
    layer_options = [options.of(layer.index) for layer in spec.convolutions]
    if (
        options.by_activations
        or any(how.calibrated or how.corrected or how.needs_statistics(INT8) for how in layer_options)
        or any(precision.is_narrow for precision in precisions.of_weights)
    ):
        from mpnet.trial.experiment import open_workbench  # brings all that evaluates

        bench = open_workbench(experiment)
        return Network(spec, names, bench.prepared, bench.options, bench.assign(), bench.threads)
    kernels = open_runtime(runtime)
    return prepare_network(spec, model.weights, names, options, precisions, runtime.threads, kernels, cache=True)
