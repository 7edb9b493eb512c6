# SPDX-License-Identifier: MIT
"""Configurations that have no figures, since values of some layer are not finite; and all that would fail at the same place."""

from __future__ import annotations

from typing import Collection, Iterable, Iterator

from mpnet.errors import EngineError
from mpnet.model.network import NetworkSpec
from mpnet.model.plan_key import split_key
from mpnet.sweep.evaluate.sharing import ancestors, restricted
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.store import FailedTrial


def baseline_error(network: NetworkSpec, key: str, reason: str) -> EngineError:
    """Return the error that ends a command whose baseline has no figures."""
    return EngineError(
        f"{network.source}: {reason}, in the configuration {key} that all others are compared with; "
        "give that layer other precisions in sweep.space.layers"
    )


class FailedTrials(Collection[Assignment]):
    """The failed configurations that were asked for, and what is known of others.

    What a layer computes depends on the precisions of its ancestors alone (integer_only: as `ancestors` says). So what
    failed in a layer fails there with any precisions of the other layers, and needs no pass.
    """

    def __init__(self, network: NetworkSpec, integer_only: bool = False) -> None:
        self._ancestors = ancestors(network, integer_only)
        # By option set and layer: codes of the layer's ancestors -> why it fails.
        self._reasons: dict[tuple[int, int], dict[str, str]] = {}
        self._configurations: set[Assignment] = set()

    def learn(self, options: int, failed_trials: Iterable[FailedTrial]) -> None:
        """Remember where configurations failed."""
        for trial in failed_trials:
            if 0 <= trial.layer < len(self._ancestors):
                self._reasons.setdefault((options, trial.layer), {})[self._codes(trial.key, trial.layer)] = trial.reason

    def add(self, options: int, failed_trials: Iterable[FailedTrial]) -> None:
        """Take in configurations that were asked for."""
        failed_trials = list(failed_trials)
        self.learn(options, failed_trials)
        self._configurations.update(Assignment(trial.key, options) for trial in failed_trials)

    def infer(self, options: int, keys: Iterable[str]) -> list[FailedTrial]:
        """Infer which of the keys fail where another one failed."""
        causes = [(layer, reasons) for (option_set, layer), reasons in self._reasons.items() if option_set == options]
        failed_trials = []
        for key in keys if causes else ():
            for layer, reasons in causes:
                reason = reasons.get(self._codes(key, layer))
                if reason is not None:
                    failed_trials.append(FailedTrial(key, layer, reason))
                    break
        return failed_trials

    def _codes(self, key: str, layer: int) -> str:
        codes, suffix = split_key(key)
        return restricted(codes, self._ancestors[layer]) + suffix

    def __contains__(self, configuration: object) -> bool:
        return configuration in self._configurations

    def __iter__(self) -> Iterator[Assignment]:
        return iter(self._configurations)

    def __len__(self) -> int:
        return len(self._configurations)
