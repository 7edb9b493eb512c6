# SPDX-License-Identifier: MIT
"""A sweep: what a strategy asks for is looked up in the store or computed, committed at once, and handed back."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Callable, Collection, Mapping, Sequence

from mpnet.model.network import NetworkSpec
from mpnet.sweep.evaluate.executor import Executor
from mpnet.sweep.evaluate.race import ruled_out_by_costs
from mpnet.sweep.evaluate.work_chunks import MAX_TRIALS, ChunkResult, WorkChunk, split_work
from mpnet.sweep.problem.front import Rivals
from mpnet.sweep.problem.problem import Batch, Problem, Results, Walk
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.search.chunk_sizes import ChunkSizes
from mpnet.sweep.search.failed import FailedTrials, baseline_error
from mpnet.sweep.search.screening import ScreenedTrials, split_screening
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.search.work_queue import Claim, WorkQueue, claim_missing
from mpnet.sweep.store import FailedTrial, Trial, TrialStore, Work
from mpnet.sweep.store.ruled_out import RuledOut

POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 10.0


@dataclass(frozen=True)
class WorkerPool:
    """The workers that compute units.

    bytes_per_head: of one head's decoded boxes, which limits the size of units. seconds_per_pass: as `ChunkSizes`.
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


OpenPool = Callable[[], WorkerPool]
"""Called when the first trial is missing: a sweep that is known already needs neither images nor workers."""
OnUpdate = Callable[[SweepState], None]


class Sweep:
    """A run of strategies over one problem.

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
        self._chunk_sizes = ChunkSizes(network)
        self._screened = ScreenedTrials(store, self.contexts, [o.name for o in problem.objectives if not o.higher])
        self._beat_at = self._counted_at = time.monotonic()
        # What is asked for again must not be counted twice.
        self._ruled_out_before: set[Assignment] = set()
        self._asked_again = False
        self._front: Rivals | None = None
        self._front_count = 0  # trials that the front is of, the first of all

    def run(self, strategy: Callable[[Problem], Walk]) -> SweepState:
        """Follow a strategy's walk to its end or to the end of the budget. Every finished trial is in the store.

        Raises: what the strategy, the executor and the store raise.
        """
        for options, context in enumerate(self.contexts):
            self.state.failed_trials.learn(options, self.store.failed_trials(context))
        walk = strategy(self.problem)
        try:
            batch = next(walk)
            while True:
                results = self._screen(batch) if batch.screen else self._evaluate(batch)
                if self.state.exhausted_budget:
                    walk.close()
                    break
                batch = walk.send(results)
        except StopIteration:
            pass
        self._on_update(self.state)
        return self.state

    def _count_ruled_out(self, ruled_out: Collection[Assignment]) -> None:
        self.state.ruled_out += sum(1 for c in ruled_out if c not in self._ruled_out_before)
        if self._asked_again:
            self._ruled_out_before.update(ruled_out)

    def _select_affordable(self, requested: Sequence[Assignment], prune: bool) -> list[Assignment]:
        """Return what is not settled yet of what a batch asks for, as far as the budget of trials goes."""
        unsettled = [c for c in requested if c not in self.state.trials and c not in self.state.failed_trials]
        if prune:
            ruled_out = self._find_ruled_out(unsettled)
            self._count_ruled_out(ruled_out)
            unsettled = [c for c in unsettled if c not in ruled_out]
        limit, settled_count = self.problem.trials, len(self.state.trials) + len(self.state.failed_trials)
        if limit is not None and settled_count + len(unsettled) > limit:
            unsettled = unsettled[: max(0, limit - settled_count)]
            self.state.exhausted_budget = "trials"
        self.state.total = self.problem.space.size if prune else settled_count + len(unsettled)
        return unsettled

    def _find_ruled_out(self, configurations: Sequence[Assignment]) -> set[Assignment]:
        """Return those that the store knows to be no part of the front."""
        ruled_out = set()
        for options, context in enumerate(self.contexts):
            keys = {c.key for c in configurations if c.options == options}
            ruled_out |= {Assignment(key, options) for key in self.store.ruled_out(context, self.problem.front_name, keys)}
        return ruled_out

    def _screen(self, batch: Batch) -> Results:
        """Return the noise of a batch's configurations on a few images, as far as their values are finite."""
        requested = [c for c in dict.fromkeys(batch.configurations) if c not in self.state.failed_trials]
        if missing := self._screened.missing(requested):
            if self._pool is None:
                self._pool = self._prepare(())
            self.show_preparation("layers are ranked by the noise that they bring, on a few images")
            running = split_screening(missing, self._pool.executor.slots)
            for chunk in running:
                self._pool.executor.submit(chunk)
            while running:
                if self._limit_seconds is not None and self.state.seconds > self._limit_seconds:
                    self.state.exhausted_budget = "seconds"
                    return {}
                for result in self._pool.executor.wait(POLL_SECONDS):
                    running.remove(result.chunk)
                    self._keep_screened(result)
                self._show_alive()
            self._screened.save()
            self.show_preparation("")
        return self._screened.find(requested)

    def _keep_screened(self, result: ChunkResult) -> None:
        now, options = time.monotonic(), result.chunk.options
        self._screened.add(options, result.trials)
        self.state.failed_trials.learn(options, result.failed_trials)
        self.store.add(
            self.contexts[options], (), work=Work(result.macs, now - self._counted_at), failed_trials=result.failed_trials
        )
        self._fail(options, result.failed_trials)
        self._counted_at = now
        self.state.macs += result.macs

    def _evaluate(self, batch: Batch) -> Results:
        """Have all of a batch evaluated that the store lacks, as far as the budget goes, and return everything known."""
        self._asked_again, self.state.stage = batch.again, batch.stage
        requested = list(dict.fromkeys(batch.configurations))
        affordable = self._select_affordable(requested, batch.prune)
        missing = set(self._look_up(affordable))
        if missing and self._pool is None:
            self._pool = self._prepare(missing)
            still_missing = set(self._look_up(affordable))
            self.state.computed += len(missing) - len(still_missing)
            missing = still_missing
            self.show_preparation("")
        if not missing or self._pool is None:
            return self.state.trials
        # Cut by what is requested, not by what is missing: processes that begin at different times claim the same units then.
        units = split_work(
            self.network,
            affordable if self.state.exhausted_budget else requested,
            workers=self._pool.executor.slots,
            bytes_per_head=self._pool.bytes_per_head,
        )
        if batch.prune:
            units.reverse()  # low precisions first
        queue = WorkQueue(deque(claim for unit in units if (claim := claim_missing(unit, missing)).keys))
        del requested, affordable, missing, units
        self._run_queue(queue, self._pool.executor, batch.prune)
        return self.state.trials

    def _run_queue(self, queue: WorkQueue, executor: Executor, prune: bool) -> None:
        """Hand units out and commit what comes back, until all is done or the time is up."""
        while not queue.is_empty:
            if self._limit_seconds is not None and self.state.seconds > self._limit_seconds:
                self.state.exhausted_budget = "seconds"
                for name in queue.claim_names:
                    self.store.release(name)
                return
            self._hand_out(queue, executor, prune)
            if queue.running:
                for result in executor.wait(POLL_SECONDS):
                    self._commit(result, *queue.running.pop(result.chunk))
            elif queue.elsewhere:
                # Another process has the rest: wait for its results, or take over what it leaves behind.
                time.sleep(POLL_SECONDS)
                queue.pending, queue.elsewhere = queue.elsewhere, queue.pending
            self._show_alive()

    def _hand_out(self, queue: WorkQueue, executor: Executor, prune: bool) -> None:
        """Give the workers as much as they should have.

        Chunks of a unit go to one worker, which caches what they share; one waits for each, so that no worker does. Racing goes
        by what is known when a chunk is handed out, so fewer wait there.
        """
        limit = executor.slots + 1 if prune else 2 * executor.slots
        while len(queue.running) < limit:
            queue.drop_finished()
            if len(queue.claimed) < executor.slots and (claim := self._claim_next(queue, prune)):
                queue.claimed.append(claim)
            if not queue.claimed:
                break
            claim = min(queue.claimed, key=lambda candidate: candidate.chunk_count)
            handed_out = claim.handed_out
            chunk = self._next_chunk(claim, prune)
            executor.submit(chunk)
            queue.running[chunk] = claim, handed_out
        queue.drop_finished()

    def _prepare(self, missing: Collection[Assignment]) -> WorkerPool:
        """Open the pool, and keep the baseline's trial where it is missing."""
        pool = self._open_pool()
        self._chunk_sizes = ChunkSizes(self.network, pool.seconds_per_pass)
        is_needed = pool.baseline_key is not None and Assignment(pool.baseline_key) in missing
        baseline = pool.baseline_trial() if is_needed else None
        trials = [] if baseline is None else [baseline]
        if pool.macs or trials:
            self.state.macs += pool.macs
            self.store.add(self.contexts[0], trials, work=Work(pool.macs, 0.0))
        return pool

    def show_preparation(self, description: str) -> None:
        """Show what runs before the first trial."""
        self.state.preparing = description
        self._on_update(self.state)

    def _claim_next(self, queue: WorkQueue, prune: bool) -> Claim | None:
        """Claim the next unit that nobody else has and of which something is missing; None: there is none for now."""
        while queue.pending:
            claim = queue.pending.popleft()
            if not self.store.claim([claim.name]):
                queue.elsewhere.append(claim)
                continue
            # Another process may have had it, and committed some of its chunks.
            missing = self._look_up(claim.configurations)
            ruled_out = self._find_ruled_out(missing) if prune else set()
            self._count_ruled_out(ruled_out)
            claim.keys = tuple(c.key for c in missing if c not in ruled_out)
            if prune:
                self._rule_out_by_costs(claim)
            if claim.keys:
                return claim
            self.store.release(claim.name)
        return None

    def _rule_out_by_costs(self, claim: Claim) -> None:
        """Settle the keys of a claim that need no image, see `race.ruled_out_by_costs`."""
        costs = None if self._pool is None else self._pool.costs
        if costs is None:
            return
        ruled_out = ruled_out_by_costs(claim.keys, self._update_rivals(), lambda key: costs(claim.options, key))
        if ruled_out:
            claim.drop({*ruled_out})
            record = RuledOut(self.problem.front_name, ruled_out, ((0, len(ruled_out)),))
            self.store.add(self.contexts[claim.options], (), ruled_out=record)
            self._count_ruled_out([Assignment(key, claim.options) for key in ruled_out])
            self.state.settled += len(ruled_out)

    def _next_chunk(self, claim: Claim, prune: bool) -> WorkChunk:
        """Cut the next chunk off a claimed unit."""
        count = self._chunk_sizes.choose(claim.keys, self.state.seconds, prune, claim.handed_out)
        keys, claim.keys = claim.keys[:count], claim.keys[count:]
        claim.chunk_count, claim.handed_out = claim.chunk_count + 1, claim.handed_out + keys
        return WorkChunk(claim.options, keys, self._update_rivals() if prune else None)

    def _update_rivals(self) -> Rivals:
        """Return the front of all trials; only those that came since the last call are looked at."""
        trials = self.state.trials
        if self._front is None or len(trials) > self._front_count:
            self._front = self.problem.rivals(trials.iterate_from(self._front_count), self._front)
            self._front_count = len(trials)
        return self._front

    def _look_up(self, configurations: Sequence[Assignment]) -> list[Assignment]:
        """Take over what the store has, and what fails as others did; the rest is returned."""
        for options, context in enumerate(self.contexts):
            keys = [c.key for c in configurations if c.options == options and c not in self.state.trials]
            for start in range(0, len(keys), MAX_TRIALS):  # packed at once: together they would take five times the memory
                batch_keys = keys[start : start + MAX_TRIALS]
                trials = self.store.find(context, batch_keys)
                for key, trial in trials.items():
                    self.state.trials.add(Assignment(key, options), trial)
                failures = self.store.find_failed(context, batch_keys)
                self._fail(options, failures)
                settled = trials.keys() | {failure.key for failure in failures}
                if inferred := self.state.failed_trials.infer(options, [key for key in batch_keys if key not in settled]):
                    self.store.add(context, (), failed_trials=inferred)
                    self._fail(options, inferred)
        return [c for c in configurations if c not in self.state.trials and c not in self.state.failed_trials]

    def _fail(self, options: int, failures: Sequence[FailedTrial]) -> None:
        """Take configurations in that have no figures. Raises: EngineError if the baseline is among them."""
        self.state.failed_trials.add(options, failures)
        for failure in failures:
            if Assignment(failure.key, options) == Assignment(self.problem.baseline):
                raise baseline_error(self.network, failure.key, failure.reason)

    def _commit(self, result: ChunkResult, claim: Claim, handed_out: tuple[str, ...]) -> None:
        """Store a finished chunk. handed_out: keys of the claim that were handed out before the chunk's."""
        now, chunk = time.monotonic(), result.chunk
        work = Work(result.macs, now - self._counted_at)
        ruled_out = RuledOut(self.problem.front_name, result.ruled_out, result.image_counts)
        claim.chunk_count -= 1
        self.state.failed_trials.learn(chunk.options, result.failed_trials)
        failures = [
            *result.failed_trials,
            *self.state.failed_trials.infer(chunk.options, claim.keys if result.failed_trials else ()),
        ]
        if failures:
            claim.drop({failure.key for failure in failures})
        finished_claim = None if claim.keys or claim.chunk_count else claim.name
        context = self.contexts[chunk.options]
        self.store.add(context, result.trials, claim=finished_claim, work=work, ruled_out=ruled_out, failed_trials=failures)
        self._fail(chunk.options, failures)
        share = result.cached_macs / max(1, result.macs + result.cached_macs)
        self._chunk_sizes.learn(chunk.keys, chunk.rivals is not None, result.seconds, handed_out, share)
        self._counted_at = now
        for trial in result.trials:
            self.state.trials.add(Assignment(trial.key, chunk.options), trial)
        self.state.computed += len(result.trials)
        self._count_ruled_out([Assignment(key, chunk.options) for key in result.ruled_out])
        self.state.settled += len(result.trials) + len(result.ruled_out) + len(failures)
        self.state.macs += result.macs
        self.state.committed = now
        self._on_update(self.state)

    def _show_alive(self) -> None:
        """Tell other processes and the view that this sweep goes on."""
        now = time.monotonic()
        if now - self._beat_at > HEARTBEAT_SECONDS:
            self.store.heartbeat()
            self._beat_at = now
        self._on_update(self.state)
