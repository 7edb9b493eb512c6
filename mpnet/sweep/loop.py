# SPDX-License-Identifier: MIT
"""A sweep: what a strategy asks for is looked up in the store or computed, committed at once, and handed back."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Callable, Sequence

from mpnet.model.network import NetworkSpec
from mpnet.sweep.executor import Executor
from mpnet.sweep.problem import Batch, Problem, Walk
from mpnet.sweep.space import Configuration
from mpnet.sweep.store import Trial, TrialStore, Work
from mpnet.sweep.store.ruled_out import RuledOut
from mpnet.sweep.units import Unit, UnitResult, split_units

POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 10.0


@dataclass
class SweepState:
    """How far a sweep is; what live views draw.

    known:    all trials so far, by configuration.
    total:    configurations that were asked for so far: all of them for strategies that know beforehand.
    ruled_out: configurations that need no trial, since they cannot be on the front.
    computed: trials that this process computed; settled: these and what it ruled out. macs: executed for them, all images.
    started:  time.monotonic() of the start. stopped: `trials` or `seconds` when a budget ended the sweep.
    """

    known: dict[Configuration, Trial] = field(default_factory=dict)
    total: int = 0
    ruled_out: int = 0
    computed: int = 0
    settled: int = 0
    macs: float = 0.0
    started: float = field(default_factory=time.monotonic)
    stopped: str | None = None

    @property
    def done(self) -> int:
        """Configurations that nothing more has to be known of."""
        return len(self.known) + self.ruled_out

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.started


@dataclass(frozen=True)
class WorkerPool:
    """The workers that compute units. bytes_per_head: of one head's decoded boxes, which limits the size of units."""

    executor: Executor
    bytes_per_head: int = 1 << 20


OpenPool = Callable[[], WorkerPool]
"""Called when the first trial is missing: a sweep that is known already needs neither images nor workers."""
OnUpdate = Callable[[SweepState], None]


class Sweep:
    """Runs strategies over one problem.

    contexts: the store's context of each option set.
    """

    def __init__(
        self,
        problem: Problem,
        network: NetworkSpec,
        store: TrialStore,
        contexts: Sequence[int],
        open_pool: OpenPool,
        *,
        seconds: float | None = None,
        on_update: OnUpdate = lambda state: None,
    ) -> None:
        self.problem, self.network, self.store = problem, network, store
        self.contexts = tuple(contexts)
        self.state = SweepState()
        self._limit_seconds, self._on_update, self._open_pool = seconds, on_update, open_pool
        self._pool: WorkerPool | None = None
        self._beat = self._counted = time.monotonic()

    def run(self, strategy: Callable[[Problem], Walk]) -> SweepState:
        """Follow a strategy's walk to its end or to the end of the budget. Every finished trial is in the store.

        Raises: what the strategy, the executor and the store raise.
        """
        walk = strategy(self.problem)
        try:
            batch = next(walk)
            while True:
                self._evaluate(self._affordable(batch), batch.prune)
                if self.state.stopped:
                    walk.close()
                    break
                batch = walk.send(self.state.known)
        except StopIteration:
            pass
        self._on_update(self.state)
        return self.state

    def _affordable(self, batch: Batch) -> list[Configuration]:
        """What of a batch the budget of trials allows."""
        new = [c for c in dict.fromkeys(batch.configurations) if c not in self.state.known]
        if batch.prune:
            ruled_out = self._ruled_out(new)
            self.state.ruled_out += len(ruled_out)
            new = [c for c in new if c not in ruled_out]
        limit = self.problem.trials
        if limit is not None and len(self.state.known) + len(new) > limit:
            new = new[: max(0, limit - len(self.state.known))]
            self.state.stopped = "trials"
        self.state.total = self.problem.space.size if batch.prune else len(self.state.known) + len(new)
        return new

    def _ruled_out(self, wanted: Sequence[Configuration]) -> set[Configuration]:
        """Those that the store knows to be no part of the front."""
        ruled_out = set()
        for options, context in enumerate(self.contexts):
            keys = {c.key for c in wanted if c.options == options}
            ruled_out |= {Configuration(key, options) for key in self.store.ruled_out(context, self.problem.front_name, keys)}
        return ruled_out

    def _evaluate(self, wanted: Sequence[Configuration], prune: bool) -> None:
        missing = self._look_up(wanted)
        if not missing:
            return
        if self._pool is None:
            self._pool = self._open_pool()
        executor = self._pool.executor
        pending = deque(split_units(self.network, missing, workers=executor.slots, bytes_per_head=self._pool.bytes_per_head))
        running: set[Unit] = set()
        elsewhere: list[Unit] = []
        while pending or running or elsewhere:
            if self._limit_seconds is not None and self.state.seconds > self._limit_seconds:
                self.state.stopped = "seconds"
                for unit in running:
                    self.store.release(unit.name)
                return
            # One more than there are slots, so that nobody waits for the next one to be handed out.
            while pending and len(running) <= executor.slots:
                unit = pending.popleft()
                if not self.store.claim([unit.name]):
                    elsewhere.append(unit)
                elif self._is_done(unit, prune):
                    self.store.release(unit.name)
                else:
                    unit = replace(unit, rivals=self.problem.rivals(self.state.known.values()) if prune else None)
                    executor.submit(unit)
                    running.add(unit)
            if running:
                for done in executor.wait(POLL_SECONDS):
                    running.discard(done.unit)
                    self._commit(done)
            elif elsewhere:
                # Another process has the rest: wait for its results, or take over what it leaves behind.
                time.sleep(POLL_SECONDS)
                pending.extend(elsewhere)
                elsewhere = []
            self._alive()

    def _is_done(self, unit: Unit, prune: bool) -> bool:
        """Whether another process has finished it."""
        missing = self._look_up([Configuration(key, unit.options) for key in unit.keys])
        if prune and missing and len(self._ruled_out(missing)) == len(missing):
            self.state.ruled_out += len(missing)
            return True
        return not missing

    def _look_up(self, wanted: Sequence[Configuration]) -> list[Configuration]:
        """Take over what the store knows; the rest is returned."""
        for options, context in enumerate(self.contexts):
            keys = [c.key for c in wanted if c.options == options and c not in self.state.known]
            for key, trial in self.store.find(context, keys).items():
                self.state.known[Configuration(key, options)] = trial
        return [c for c in wanted if c not in self.state.known]

    def _commit(self, done: UnitResult) -> None:
        now, unit = time.monotonic(), done.unit
        work = Work(done.macs, now - self._counted)
        ruled_out = RuledOut(self.problem.front_name, done.ruled_out)
        self.store.add(self.contexts[unit.options], done.trials, claim=unit.name, work=work, ruled_out=ruled_out)
        self._counted = now
        self.state.known.update({Configuration(trial.key, unit.options): trial for trial in done.trials})
        self.state.computed += len(done.trials)
        self.state.ruled_out += len(done.ruled_out)
        self.state.settled += len(done.trials) + len(done.ruled_out)
        self.state.macs += done.macs
        self._on_update(self.state)

    def _alive(self) -> None:
        now = time.monotonic()
        if now - self._beat > HEARTBEAT_SECONDS:
            self.store.heartbeat()
            self._beat = now
        self._on_update(self.state)
