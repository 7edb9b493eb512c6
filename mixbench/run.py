# SPDX-License-Identifier: MIT
"""Run methods on problems and write their submissions.

python -m mixbench.run [--method NAME]... [--problem NAME]... [--budget PASSES] [--seed N] [--measure] [-o FOLDER]

Without names: all methods on all problems whose tables have all assignments; --measure runs what other tables lack, and takes
these as well, but for `exhaustive`. Submissions go to runs/mixbench/submissions.
"""

from __future__ import annotations

import argparse
import importlib
import math
import pkgutil
import sys
from pathlib import Path
from typing import Callable

import numpy as np

from mixbench import methods
from mixbench.errors import BenchmarkError, require_mpnet
from mixbench.methods import Method, mpnet_strategies
from mixbench.problem import BudgetSpent, Problem, load_problem, loader_of, problem_names
from mixbench.submission import Submission, write_submission


def _declared() -> dict[str, Method]:
    """Collect what the modules of mixbench.methods declare as `METHOD`, by the module's name with hyphens."""
    modules = {
        module.name: importlib.import_module(f"{methods.__name__}.{module.name}")
        for module in pkgutil.iter_modules(methods.__path__)
    }
    declarations = {name.replace("_", "-"): getattr(module, "METHOD", None) for name, module in modules.items()}
    return {name: method for name, method in declarations.items() if isinstance(method, Method)}


METHODS: dict[str, Method] = {**_declared(), **mpnet_strategies.METHODS}


def run(
    method: str, name: str, budget: float = math.inf, seed: int = 0, load: Callable[[str, float], Problem] = load_problem
) -> Submission:
    """Run a method on the problem of a name. load: gives the problem.

    Raises: BenchmarkError for unknown names, and what the method raises.
    """
    if method not in METHODS:
        raise BenchmarkError(f"{method}: unknown method; there are {', '.join(METHODS)}")
    problem = load(name, budget)
    if method == "exhaustive" and problem.is_sample:
        raise BenchmarkError(f"{name}: has {problem.size:.1e} assignments, too many to run all; name another method")
    try:
        answers = tuple(dict.fromkeys(METHODS[method].search(problem, np.random.default_rng(seed))))
    except BudgetSpent:
        answers = tuple(problem.asked)
    submission = Submission(method, problem, answers)
    if not answers or submission.passes > budget:
        # Answers cost a pass each where nothing was asked for them: as many as the budget still holds.
        remaining = int(budget - problem.passes)
        problem.asked.update(dict.fromkeys([key for key in answers if key not in problem.asked][:remaining]))
        submission = Submission(method, problem, tuple(key for key in answers if key in problem.asked))
    problem.complete(submission.answers)
    return submission


def _runnable_methods() -> list[str]:
    """List the methods that run here; whether some are left out is said."""
    try:
        require_mpnet("mpnet's own strategies, which are left out")
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return [name for name in METHODS if name not in mpnet_strategies.METHODS]
    return list(METHODS)


def _runnable_problems(is_measured: bool) -> list[str]:
    """List the problems on which every method finds what it asks for; whether some are left out is said."""
    complete = [name for name in problem_names() if is_measured or load_problem(name).is_complete]
    if left_out := [name for name in problem_names() if name not in complete]:
        print(f"{', '.join(left_out)}: left out, as their tables lack assignments; --measure runs these", file=sys.stderr)
    return complete


def main(arguments: list[str]) -> int:
    """Run the command. Result: exit code."""
    parser = argparse.ArgumentParser(prog="python -m mixbench.run", description="Run methods on problems.")
    parser.add_argument("--method", action="append")
    parser.add_argument("--problem", action="append")
    parser.add_argument("--budget", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/mixbench/submissions"))
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args(arguments)
    try:
        load = loader_of(options.measure)
        chosen_methods = options.method or _runnable_methods()
        for problem in options.problem or _runnable_problems(options.measure):
            for method in chosen_methods:
                if method == "exhaustive" and not load_problem(problem).is_complete and not options.method:
                    continue
                submission = run(method, problem, options.budget, options.seed, load)
                if not submission.answers:
                    print(f"{problem} {method}: the budget holds no answer", file=sys.stderr)
                    continue
                path = options.out / f"{problem}.{method}.{options.seed}.json"
                write_submission(submission, path)
                print(f"{path}: {submission.passes:,} passes, {len(submission.answers)} answers", flush=True)
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
