# SPDX-License-Identifier: MIT
"""Configurations that run on a few images at a time, and what they find and measure on all of these together."""

from __future__ import annotations

from typing import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import EngineError
from mpnet.sweep.evaluate.head_results import Outputs
from mpnet.sweep.evaluate.scoring import Noise, Scorer
from mpnet.sweep.evaluate.shared_passes import SharedPasses
from mpnet.sweep.evaluate.stem_cache import StemCache
from mpnet.sweep.store import FailedTrial
from mpnet.trial.kit import Decoded, Predictions


class IncrementalRuns:
    """Configurations of one option set, run on a few images at a time; see `race.PartialRuns`.

    likely, stem_cache, is_decoded: as `SharedPasses.forward`; where likely or not decoded, nothing can be measured.
    macs: executed so far, all images, with all cells of heads. cached_macs: as `Outputs`. failures: keys with values
    that are not finite, which no later run takes in.
    """

    def __init__(
        self,
        passes: SharedPasses,
        options: int,
        likely: bool = False,
        stem_cache: StemCache | None = None,
        is_decoded: bool = True,
    ) -> None:
        self._passes, self._options, self._likely, self._stem_cache = passes, options, likely, stem_cache
        self._is_decoded = is_decoded
        self._decoder = passes.context.decoder
        self._images: list[NDArray[np.intp]] = []
        self._outputs: list[Outputs] = []
        # What was joined of all runs, which many configurations share.
        self._joined: dict[tuple[int, str], Decoded] = {}
        self.macs = self.cached_macs = 0
        self.failures: dict[str, FailedTrial] = {}

    @property
    def decoded_bytes(self) -> int:
        """Return the bytes that the fullest decoded output takes."""
        return max(int(tensor.nbytes) for outputs in self._outputs for output in outputs.decoded for tensor in output.values())

    def run(self, keys: Sequence[str], images: NDArray[np.intp], keep: Sequence[NDArray[np.float32]] = ()) -> None:
        """Run the configurations on the images at these positions. keep: as `SharedPasses.forward`."""
        graph = self._passes.graph(self._options, keys)
        self._graph = graph
        outputs = self._passes.forward(graph, self._options, images, keep, self._likely, self._stem_cache, self._is_decoded)
        self._outputs.append(outputs)
        self._images.append(images)
        self._joined.clear()
        self.macs += graph.macs * len(images) - outputs.cached_macs
        self.cached_macs += outputs.cached_macs
        for key in keys if any(outputs.failures) else ():
            failures_by_head = zip(outputs.failures, graph.head_names(key), strict=True)
            causes = [failures[name] for failures, name in failures_by_head if name in failures]
            if causes:
                earliest = min(causes, key=lambda failure: failure.layer)
                self.failures[key] = FailedTrial(key, earliest.layer, earliest.reason)

    def run_all(self, key: str, keep: Sequence[NDArray[np.float32]] = ()) -> None:
        """Run one configuration on all images. Raises: EngineError that names the layer, for values that are not finite."""
        context = self._passes.context
        self.run((key,), np.arange(len(context.geometry)), keep)
        if self.failures:
            raise EngineError(f"{context.network.source}: {self.failures[key].reason}")

    def predictions(self, keys: Sequence[str], first_run: int) -> Predictions:
        """Return what some keys of the last run find in the images of all runs from `first_run` on, one key after the other."""
        decoder = self._decoder.of_images(np.concatenate(self._images[first_run:]))
        names = zip(*(self._graph.head_names(key) for key in keys), strict=True)
        return decoder.predictions(
            [
                decoder.join(
                    [outputs.decoded[output][name] for name in names_of_output for outputs in self._outputs[first_run:]]
                )
                for output, names_of_output in enumerate(names)
            ]
        )

    def noise(self, key: str) -> list[NDArray[np.float64]]:
        """Return the squared differences to the baseline of each output, by image of all runs."""
        return [self._noise(output, name, None) for output, name in self._names(key)]

    def measure(self, keys: Sequence[str], scorer: Scorer) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield the figures of each key, which all runs so far have had.

        It is run first on the images that none of them had; what fails there has no figures.
        """
        if not keys:
            return
        count, run_count = len(self._passes.context.geometry), len(self._images)
        remaining = np.setdiff1d(np.arange(count), np.concatenate([np.zeros(0, np.intp), *self._images]))
        if len(remaining):
            self.run(keys, remaining)
            keys = [key for key in keys if key not in self.failures]
        order = np.argsort(np.concatenate(self._images)) if len(self._images) > 1 else None
        for key in keys:
            outputs = [self._decoded(output, name, order) for output, name in self._names(key)]
            noise = (
                [Noise(self._passes.signal[output], self._noise(output, name, order)) for output, name in self._names(key)]
                if self._passes.signal
                else []
            )
            yield key, scorer.measure(self._decoder.predictions(outputs), noise)
        # Other keys have not had the rest.
        del self._images[run_count:], self._outputs[run_count:]
        self._joined.clear()

    def _names(self, key: str) -> Iterator[tuple[int, str]]:
        return enumerate(self._graph.head_names(key))

    def _decoded(self, output: int, name: str, order: NDArray[np.intp] | None) -> Decoded:
        if (output, name) not in self._joined:
            pieces = [outputs.decoded[output][name] for outputs in self._outputs]
            self._joined[output, name] = self._decoder.join(pieces, order)
        return self._joined[output, name]

    def _noise(self, output: int, name: str, order: NDArray[np.intp] | None) -> NDArray[np.float64]:
        noise = np.concatenate([outputs.noise[output][name] for outputs in self._outputs])
        return noise if order is None else noise[order]
