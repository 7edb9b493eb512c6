# SPDX-License-Identifier: MIT
"""Training of a quantised network against the heads of fp32, by PyTorch: biases and factors first, then weights.

Adam's steps are bounded by their rates. What counts is the running mean of the weights, and of those the state with the least
loss on images that did not train; where the loss runs away, that state is kept and training ends.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from mpnet.errors import EngineError
from mpnet.json_values import JsonObject
from mpnet.model.network import NetworkSpec
from mpnet.progress import Advance, unseen
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.tuning.head_losses import head_loss
from mpnet.tuning.torch_network import TorchNetwork
from mpnet.tuning.torch_operations import Tensor

Images = NDArray[np.float32]
Take = Callable[[Sequence[int]], Images]
"""Returns the images (n, h, w, c) at some positions."""
Forward = Callable[[Images], Sequence[Images]]


@dataclass(frozen=True)
class Schedule:
    """A training's length and rates, in steps of codes, of biases and of factors (`torch_network`).

    minutes: most wall time. steps: most steps, None: as many as the time has. batch: images of a step.
    alone:   share of it in which biases and factors move alone. memory: of the running mean, in steps.
    watched: how often the images that did not train are looked at.
    cached_bytes: of images and their heads of fp32, which are kept as far as they fit.
    """

    minutes: float = 10.0
    steps: int | None = None
    seed: int = 0
    threads: int = 1
    batch: int = 8
    weight_rate: float = 0.004
    bias_rate: float = 0.05
    factor_rate: float = 0.03
    alone: float = 0.15
    warm_up: int = 20
    memory: float = 25.0
    watched: int = 12
    cached_bytes: int = 2 << 30


@dataclass(frozen=True, eq=False)
class Trained:
    """The best state. details: figures of the training. is_interrupted: whether somebody stopped it."""

    folded: dict[int, FoldedConvolution]
    details: JsonObject
    is_interrupted: bool


def train(
    spec: NetworkSpec,
    network: TorchNetwork,
    reference: Forward,
    take: Take,
    positions: Sequence[int],
    watched: Sequence[int],
    schedule: Schedule,
    advance: Advance = unseen,
) -> Trained:
    """Train until the time or the steps are over.

    reference: forward pass of fp32, (n, h, w, c) -> the tensors that enter the heads. take: images by position.
    positions: images that train; watched: those that choose the best state. advance: counts seconds, or steps.
    KeyboardInterrupt ends it with the best state so far. Raises: EngineError where the loss is not finite from the start.
    """
    torch.set_num_threads(schedule.threads)
    training = _Training(spec, network, reference, take, positions, watched, schedule)
    is_interrupted = False
    try:
        training.run(advance)
    except KeyboardInterrupt:
        is_interrupted = True
    return Trained(training.best(), training.details(), is_interrupted)


class _Training:
    def __init__(
        self,
        spec: NetworkSpec,
        network: TorchNetwork,
        reference: Forward,
        take: Take,
        positions: Sequence[int],
        watched: Sequence[int],
        schedule: Schedule,
    ) -> None:
        self._spec, self._network, self._reference, self._take = spec, network, reference, take
        self._positions, self._schedule = list(positions), schedule
        self._images: dict[int, Images] = {}
        self._targets: dict[tuple[int, bool], list[Images]] = {}
        self._free_bytes = schedule.cached_bytes
        self._random = np.random.RandomState(schedule.seed)
        self._waiting: list[int] = []
        self._watched = [list(watched[start : start + 8]) for start in range(0, len(watched), 8)]
        self._moves = network.moves()
        self._values = [moves for _, moves in self._moves]
        self._rates = {"weights": schedule.weight_rate, "biases": schedule.bias_rate, "factors": schedule.factor_rate}
        groups = [{"params": [moves for kind, moves in self._moves if kind == name], "lr": 0.0} for name in self._rates]
        self._optimiser = torch.optim.Adam(groups, betas=(0.9, 0.99))
        self._mean = [moves.detach().clone() for moves in self._values]
        self._best = [mean.clone() for mean in self._mean]
        self.steps, self._history = 0, list[list[float]]()

    def run(self, advance: Advance) -> None:
        """Train; the best state so far is there whenever it ends."""
        schedule, started, reported = self._schedule, time.monotonic(), 0
        images, _ = self._batch(self._positions[: schedule.batch], False)
        self._network.measure_biases(images)
        first = least = self._watch()
        if not math.isfinite(first):
            raise EngineError("the loss of the configuration is not finite, so it cannot be trained")
        share, looked = 0.0, 0
        while share < 1:
            self._step(share)
            elapsed = (time.monotonic() - started) / (60 * schedule.minutes) if schedule.minutes else 1.0
            share = max(elapsed, 0.0 if schedule.steps is None else self.steps / schedule.steps)
            whole = int(share * 100)
            advance(min(whole, 100) - reported)
            reported = max(reported, min(whole, 100))
            if int(share * schedule.watched) > looked:
                looked = int(share * schedule.watched)
                loss = self._watch()
                if loss < least:
                    least = loss
                    self._best = [mean.clone() for mean in self._mean]
                if not loss < 4 * first:  # NaN as well
                    return

    def _batch(self, positions: Sequence[int], is_mirrored: bool) -> tuple[Tensor, list[Tensor]]:
        """Return images (n, c, h, w) and their heads of fp32, which are computed once as far as the cache has room."""
        absent = [position for position in positions if position not in self._images]
        taken = dict(self._images)
        if absent:
            taken.update(zip(absent, np.array(self._take(absent)), strict=True))
        for position in absent:
            self._keep(self._images, position, taken[position], taken[position].nbytes)
        images = np.stack([taken[position] for position in positions])
        if is_mirrored:
            images = np.ascontiguousarray(images[:, :, ::-1])
        targets = {position: self._targets.get((position, is_mirrored)) for position in positions}
        absent = [index for index, position in enumerate(positions) if targets[position] is None]
        if absent:
            heads = [np.array(head) for head in self._reference(images[absent])]
            for row, index in enumerate(absent):
                found = [head[row] for head in heads]
                targets[positions[index]] = found
                self._keep(self._targets, (positions[index], is_mirrored), found, sum(head.nbytes for head in found))
        rows = [targets[position] or [] for position in positions]
        stacked = [torch.from_numpy(np.stack(heads)).permute(0, 3, 1, 2) for heads in zip(*rows, strict=True)]
        return torch.from_numpy(images).permute(0, 3, 1, 2), stacked

    def _keep(self, cache: dict[Any, Any], key: object, value: object, size_bytes: int) -> None:
        if size_bytes <= self._free_bytes:
            cache[key] = value
            self._free_bytes -= size_bytes

    def _step(self, share: float) -> None:
        schedule = self._schedule
        if len(self._waiting) < schedule.batch:
            self._waiting += list(self._random.permutation(self._positions))
        chosen, self._waiting = self._waiting[: schedule.batch], self._waiting[schedule.batch :]
        images, targets = self._batch(sorted(int(position) for position in chosen), bool(self._random.randint(2)))
        warm = min(1.0, (self.steps + 1) / schedule.warm_up) * (0.02 + 0.49 * (1 + math.cos(math.pi * share)))
        for group, (kind, rate) in zip(self._optimiser.param_groups, self._rates.items(), strict=True):
            group["lr"] = 0.0 if kind == "weights" and share < schedule.alone else rate * warm
        loss = head_loss(self._spec, self._network(images), targets)
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        self.steps += 1
        with torch.no_grad():
            weight = 1 / min(self.steps, schedule.memory)
            for mean, moves in zip(self._mean, self._values, strict=True):
                mean.lerp_(moves, weight)

    def _watch(self) -> float:
        """Return the loss of the mean state on the watched images, which is kept in the history."""
        current = [moves.detach().clone() for moves in self._values]
        self._put(self._mean)
        with torch.no_grad():
            losses = [
                float(head_loss(self._spec, self._network(images), targets)) * len(images)
                for images, targets in (self._batch(positions, False) for positions in self._watched)
            ]
        self._put(current)
        loss = sum(losses) / max(1, sum(map(len, self._watched)))
        self._history.append([self.steps, round(loss, 5)])
        return loss

    def _put(self, values: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for moves, value in zip(self._values, values, strict=True):
                moves.copy_(value)

    def best(self) -> dict[int, FoldedConvolution]:
        """Return the convolutions of the state with the least loss on the watched images."""
        self._put(self._best)
        return self._network.folded()

    def details(self) -> JsonObject:
        """Return steps, and the loss on the watched images by step."""
        return {"steps": self.steps, "batch": self._schedule.batch, "watched_loss": list(self._history)}
