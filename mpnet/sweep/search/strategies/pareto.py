# SPDX-License-Identifier: MIT
"""NSGA-II or TPE through Optuna, for spaces beyond exhaustion. Optuna is an extra: pip install 'mpnet[search]'."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from mpnet.errors import ConfigError
from mpnet.sweep.problem.problem import Batch, Problem, Walk
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.search.strategies import Strategy

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

DEFAULT_TRIALS = 200
POPULATION = 32
# Generations that bring nothing new before the search gives up: a small space is soon known.
PATIENCE = 20


def pareto(problem: Problem) -> Walk:
    """Ask Optuna for populations until `budget.trials` different configurations were tried.

    The corners (all high, all low) come first. Deterministic for a seed.
    Raises: ConfigError when Optuna is not installed.
    """
    optuna = _optuna()
    space = problem.space
    trial_limit = min(problem.trials or DEFAULT_TRIALS, space.size)
    study = optuna.create_study(
        directions=["maximize" if o.higher else "minimize" for o in problem.objectives],
        sampler=_sampler(optuna, problem.sampler, problem.seed, len(space.variables)),
    )
    choices = {
        f"v{number}": optuna.distributions.CategoricalDistribution(tuple(variable.codes))
        for number, variable in enumerate(space.variables)
    }
    if len(space.option_sets) > 1:
        choices["options"] = optuna.distributions.CategoricalDistribution(tuple(range(len(space.option_sets))))
    for key in dict.fromkeys((space.highest(), space.lowest())):
        corner: dict[str, str | int] = {f"v{number}": code for number, code in enumerate(space.codes_of(key))}
        study.enqueue_trial({**corner, "options": 0} if "options" in choices else corner)
    requested: set[Assignment] = set()
    idle = 0
    while len(requested) < trial_limit and idle < PATIENCE:
        suggestions = [study.ask(fixed_distributions=choices) for _ in range(POPULATION)]
        batch = [
            Assignment(
                space.key_of([trial.params[f"v{n}"] for n in range(len(space.variables))]), int(trial.params.get("options", 0))
            )
            for trial in suggestions
        ]
        new_configurations = [c for c in dict.fromkeys(batch) if c not in requested][: trial_limit - len(requested)]
        idle = 0 if new_configurations else idle + 1
        requested.update(new_configurations)
        stage = f"a population, {len(requested)} of at most {trial_limit} trials"
        results = yield Batch(new_configurations, stage=stage)
        for trial, configuration in zip(suggestions, batch, strict=True):
            if configuration in results:
                study.tell(trial, [problem.value(results[configuration], o.name) for o in problem.objectives])
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)


def _optuna() -> ModuleType:
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "sweep.strategy: pareto needs Optuna, which is not installed; "
            "pip install 'mpnet[search]', or use greedy or additive"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    module: ModuleType = optuna
    return module


def _sampler(optuna: ModuleType, name: str, seed: int, variables: int) -> BaseSampler:
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=POPULATION, constant_liar=True)
    return optuna.samplers.NSGAIISampler(population_size=POPULATION, seed=seed, mutation_prob=1 / variables)


STRATEGY = Strategy(pareto)
