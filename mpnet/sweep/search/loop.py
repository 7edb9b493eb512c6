# SPDX-License-Identifier: MIT
"""A sweep: what a strategy asks for is looked up in the store or computed, committed at once, and handed back."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Callable, Collection, Mapping, Sequence

from mpnet.model.network import NetworkSpec
from mpnet.sweep.evaluate.executor import Executor
from mpnet.sweep.evaluate.race import ruled_out_by_costs
from mpnet.sweep.evaluate.units import MAX_TRIALS, Unit, UnitResult, split_units
from mpnet.sweep.problem.front import Rivals
from mpnet.sweep.problem.known import KnownTrials
from mpnet.sweep.problem.problem import Batch, Problem, Walk
from mpnet.sweep.problem.space import Configuration
from mpnet.sweep.search.failed import FailedTrials, baseline_failed
from mpnet.sweep.search.parts import Parts
from mpnet.sweep.store import FailedTrial, Trial, TrialStore, Work
from mpnet.sweep.store.ruled_out import RuledOut

POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 10.0


@dataclass
class SweepState:
    """How far a sweep is; what live views draw.

    known:    all trials so far, by configuration. failed: configurations without figures.
    total:    configurations that were asked for so far: all of them for strategies that know beforehand.
    ruled_out: configurations that need no trial, since they cannot be on the front.
    computed: trials that this process computed; settled: these and what it ruled out. macs: executed for them, all images.
    started:  time.monotonic() of the start; committed: of the last commit.
    stopped:  `trials` or `seconds` when a budget ended the sweep.
    preparing: what runs before the first trial, '' for nothing.
    """

    failed: FailedTrials
    known: KnownTrials = field(default_factory=KnownTrials)
    total: int = 0
    ruled_out: int = 0
    computed: int = 0
    settled: int = 0
    macs: float = 0.0
    started: float = field(default_factory=time.monotonic)
    committed: float = 0.0
    stopped: str | None = None
    preparing: str = ""

    @property
    def done(self) -> int:
        """Configurations that nothing more has to be known of."""
        return len(self.known) + self.ruled_out + len(self.failed)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.started

    @property
    def per_second(self) -> float:
        """Configurations settled per second, up to the last commit: between commits nobody knows better."""
        return self.settled / max(self.committed - self.started, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """At this rate; None as long as there is none."""
        if not self.settled:
            return None
        return max(0.0, (self.total - self.done) / self.per_second - (time.monotonic() - self.committed))


@dataclass(frozen=True)
class WorkerPool:
    """The workers that compute units.

    bytes_per_head: of one head's decoded boxes, which limits the size of units. seconds_per_pass: as `Parts`.
    macs: executed to prepare them, beside the baseline's. baseline_key: of the one whose pass prepared them, None for none;
    baseline_trial: measures it. costs: of an option set and key, by name of the measure; None: not known without a worker.
    """

    executor: Executor
    bytes_per_head: int = 1 << 20
    seconds_per_pass: float = 0.0
    macs: int = 0
    baseline_key: str | None = None
    baseline_trial: Callable[[], Trial | None] = lambda: None
    costs: Callable[[int, str], Mapping[str, float]] | None = None


@dataclass
class _Claim:
    """A unit to be claimed, or claimed already. keys: of it that are wanted and not handed out yet, rising. running: parts.

    before: those that were handed out.
    """

    name: str
    options: int
    keys: tuple[str, ...]
    running: int = 0
    before: tuple[str, ...] = ()

    @property
    def configurations(self) -> list[Configuration]:
        """Of the keys."""
        return [Configuration(key, self.options) for key in self.keys]


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
        integer_only: bool = False,
    ) -> None:
        self.problem, self.network, self.store = problem, network, store
        self.contexts = tuple(contexts)
        self.state = SweepState(FailedTrials(network, integer_only))
        self._limit_seconds, self._on_update, self._open_pool = seconds, on_update, open_pool
        self._pool: WorkerPool | None = None
        self._parts = Parts(network)
        self._beat = self._counted = time.monotonic()
        # What is asked for again must not be counted twice.
        self._ruled_out_before: set[Configuration] = set()
        self._asked_again = False
        self._front: Rivals | None = None
        self._front_of = 0  # trials, the first of those known

    def run(self, strategy: Callable[[Problem], Walk]) -> SweepState:
        """Follow a strategy's walk to its end or to the end of the budget. Every finished trial is in the store.

        Raises: what the strategy, the executor and the store raise.
        """
        for options, context in enumerate(self.contexts):
            self.state.failed.learn(options, self.store.failed(context))
        walk = strategy(self.problem)
        try:
            batch = next(walk)
            while True:
                self._evaluate(batch)
                if self.state.stopped:
                    walk.close()
                    break
                batch = walk.send(self.state.known)
        except StopIteration:
            pass
        self._on_update(self.state)
        return self.state

    def _count_ruled_out(self, ruled_out: Collection[Configuration]) -> None:
        self.state.ruled_out += sum(1 for c in ruled_out if c not in self._ruled_out_before)
        if self._asked_again:
            self._ruled_out_before.update(ruled_out)

    def _affordable(self, asked: Sequence[Configuration], prune: bool) -> list[Configuration]:
        """What is not known yet of what a batch asks for, as far as the budget of trials goes."""
        new = [c for c in asked if c not in self.state.known and c not in self.state.failed]
        if prune:
            ruled_out = self._ruled_out(new)
            self._count_ruled_out(ruled_out)
            new = [c for c in new if c not in ruled_out]
        limit, tried = self.problem.trials, len(self.state.known) + len(self.state.failed)
        if limit is not None and tried + len(new) > limit:
            new = new[: max(0, limit - tried)]
            self.state.stopped = "trials"
        self.state.total = self.problem.space.size if prune else tried + len(new)
        return new

    def _ruled_out(self, wanted: Sequence[Configuration]) -> set[Configuration]:
        """Those that the store knows to be no part of the front."""
        ruled_out = set()
        for options, context in enumerate(self.contexts):
            keys = {c.key for c in wanted if c.options == options}
            ruled_out |= {Configuration(key, options) for key in self.store.ruled_out(context, self.problem.front_name, keys)}
        return ruled_out

    def _evaluate(self, batch: Batch) -> None:
        self._asked_again = batch.again
        asked = list(dict.fromkeys(batch.configurations))
        affordable = self._affordable(asked, batch.prune)
        missing = set(self._look_up(affordable))
        if not missing:
            return
        if self._pool is None:
            self._pool = self._prepare(missing)
            before, missing = len(missing), set(self._look_up(affordable))
            self.state.computed += before - len(missing)
            self.preparing("")
            if not missing:
                return
        executor = self._pool.executor
        # Cut by what is asked for, not by what is missing: processes that begin at different times claim the same units then.
        asked = affordable if self.state.stopped else asked
        units = split_units(self.network, asked, workers=executor.slots, bytes_per_head=self._pool.bytes_per_head)
        if batch.prune:
            units.reverse()  # low precisions first
        pending = deque(unclaimed for unit in units if (unclaimed := _claim_of(unit, missing)).keys)
        del asked, affordable, missing, units
        open_: list[_Claim] = []  # units of which parts are handed out, one for each slot
        running: dict[Unit, tuple[_Claim, tuple[str, ...]]] = {}
        # Parts of a unit go to one worker, which keeps what they share; one waits for each, so that no worker does. Racing goes
        # by what is known when a part is handed out, so fewer wait there.
        most = executor.slots + 1 if batch.prune else 2 * executor.slots
        elsewhere: deque[_Claim] = deque()
        while pending or open_ or running or elsewhere:
            if self._limit_seconds is not None and self.state.seconds > self._limit_seconds:
                self.state.stopped = "seconds"
                for name in {held.name for held in (*(claim for claim, _ in running.values()), *open_)}:
                    self.store.release(name)
                return
            while len(running) < most:
                open_ = [claim for claim in open_ if claim.keys]  # all that was left of one may have failed
                if len(open_) < executor.slots and (claimed := self._claimed(pending, elsewhere, batch.prune)):
                    open_.append(claimed)
                if not open_:
                    break
                claim = min(open_, key=lambda one: one.running)
                earlier = claim.before
                part = self._part(claim, batch.prune)
                executor.submit(part)
                running[part] = claim, earlier
            open_ = [claim for claim in open_ if claim.keys]
            if running:
                for done in executor.wait(POLL_SECONDS):
                    self._commit(done, *running.pop(done.unit))
            elif elsewhere:
                # Another process has the rest: wait for its results, or take over what it leaves behind.
                time.sleep(POLL_SECONDS)
                pending, elsewhere = elsewhere, pending
            self._alive()

    def _prepare(self, missing: Collection[Configuration]) -> WorkerPool:
        """Open the pool, and keep the baseline's trial where it is missing."""
        pool = self._open_pool()
        self._parts = Parts(self.network, pool.seconds_per_pass)
        wanted = pool.baseline_key is not None and Configuration(pool.baseline_key) in missing
        baseline = pool.baseline_trial() if wanted else None
        kept = [] if baseline is None else [baseline]
        if pool.macs or kept:
            self.state.macs += pool.macs
            self.store.add(self.contexts[0], kept, work=Work(pool.macs, 0.0))
        return pool

    def preparing(self, what: str) -> None:
        """Show what runs before the first trial."""
        self.state.preparing = what
        self._on_update(self.state)

    def _claimed(self, pending: deque[_Claim], elsewhere: deque[_Claim], prune: bool) -> _Claim | None:
        """The next unit that nobody else has, of which something is missing; None: there is none for now."""
        while pending:
            claim = pending.popleft()
            if not self.store.claim([claim.name]):
                elsewhere.append(claim)
                continue
            # Another process may have had it, and committed some of its parts.
            missing = self._look_up(claim.configurations)
            ruled_out = self._ruled_out(missing) if prune else set()
            self._count_ruled_out(ruled_out)
            claim.keys = tuple(c.key for c in missing if c not in ruled_out)
            if prune:
                self._rule_out_by_costs(claim)
            if claim.keys:
                return claim
            self.store.release(claim.name)
        return None

    def _rule_out_by_costs(self, claim: _Claim) -> None:
        """Settle the keys of a claim that need no image, see `race.ruled_out_by_costs`."""
        costs = None if self._pool is None else self._pool.costs
        if costs is None:
            return
        without = ruled_out_by_costs(claim.keys, self._rivals(), lambda key: costs(claim.options, key))
        if without:
            out = {*without}
            claim.keys = tuple(key for key in claim.keys if key not in out)
            ruled_out = RuledOut(self.problem.front_name, without, ((0, len(without)),))
            self.store.add(self.contexts[claim.options], (), ruled_out=ruled_out)
            self._count_ruled_out([Configuration(key, claim.options) for key in without])
            self.state.settled += len(without)

    def _part(self, claim: _Claim, prune: bool) -> Unit:
        """The next part of a claimed unit."""
        count = self._parts.first(claim.keys, self.state.seconds, prune, claim.before)
        part, claim.keys = claim.keys[:count], claim.keys[count:]
        claim.running, claim.before = claim.running + 1, claim.before + part
        return Unit(claim.options, part, self._rivals() if prune else None)

    def _rivals(self) -> Rivals:
        """The front of what is known; only what came since the last call is looked at."""
        known = self.state.known
        if self._front is None or len(known) > self._front_of:
            self._front = self.problem.rivals(known.since(self._front_of), self._front)
            self._front_of = len(known)
        return self._front

    def _look_up(self, wanted: Sequence[Configuration]) -> list[Configuration]:
        """Take over what the store knows, and what fails as others did; the rest is returned."""
        for options, context in enumerate(self.contexts):
            keys = [c.key for c in wanted if c.options == options and c not in self.state.known]
            for start in range(0, len(keys), MAX_TRIALS):  # packed at once: together they would take five times the memory
                part = keys[start : start + MAX_TRIALS]
                stored = self.store.find(context, part)
                for key, trial in stored.items():
                    self.state.known.add(Configuration(key, options), trial)
                failed = self.store.find_failed(context, part)
                self._fail(options, failed)
                settled = stored.keys() | {one.key for one in failed}
                if alike := self.state.failed.alike(options, [key for key in part if key not in settled]):
                    self.store.add(context, (), failed=alike)
                    self._fail(options, alike)
        return [c for c in wanted if c not in self.state.known and c not in self.state.failed]

    def _fail(self, options: int, failed: Sequence[FailedTrial]) -> None:
        """Take configurations in that have no figures. Raises: EngineError if the baseline is among them."""
        self.state.failed.add(options, failed)
        for one in failed:
            if Configuration(one.key, options) == Configuration(self.problem.baseline):
                raise baseline_failed(self.network, one.key, one.reason)

    def _commit(self, done: UnitResult, claim: _Claim, before: tuple[str, ...]) -> None:
        """before: keys of the claim that were handed out before the part's."""
        now, unit = time.monotonic(), done.unit
        work = Work(done.macs, now - self._counted)
        ruled_out = RuledOut(self.problem.front_name, done.ruled_out, done.after)
        claim.running -= 1
        self.state.failed.learn(unit.options, done.failed)
        failed = [*done.failed, *self.state.failed.alike(unit.options, claim.keys if done.failed else ())]
        if failed:
            without = {one.key for one in failed}
            claim.keys = tuple(key for key in claim.keys if key not in without)
        ended = None if claim.keys or claim.running else claim.name
        context = self.contexts[unit.options]
        self.store.add(context, done.trials, claim=ended, work=work, ruled_out=ruled_out, failed=failed)
        self._fail(unit.options, failed)
        share = done.saved / max(1, done.macs + done.saved)
        self._parts.measured(unit.keys, unit.rivals is not None, done.seconds, before, share)
        self._counted = now
        for trial in done.trials:
            self.state.known.add(Configuration(trial.key, unit.options), trial)
        self.state.computed += len(done.trials)
        self._count_ruled_out([Configuration(key, unit.options) for key in done.ruled_out])
        self.state.settled += len(done.trials) + len(done.ruled_out) + len(failed)
        self.state.macs += done.macs
        self.state.committed = now
        self._on_update(self.state)

    def _alive(self) -> None:
        now = time.monotonic()
        if now - self._beat > HEARTBEAT_SECONDS:
            self.store.heartbeat()
            self._beat = now
        self._on_update(self.state)


def _claim_of(unit: Unit, missing: Collection[Configuration]) -> _Claim:
    return _Claim(unit.name, unit.options, tuple(key for key in unit.keys if Configuration(key, unit.options) in missing))
