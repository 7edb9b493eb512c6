"""Reads Darknet's weights files.

Header: int32 major, minor, revision; then the images seen as uint64 when major * 10 + minor >= 2, else as int32. Then
per convolution, in order: biases; with batch normalisation scales, means, variances; then weights (out, in / groups,
kh, kw). All little-endian float32.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from pathlib import Path
from typing import Any, Iterator, Mapping

import numpy as np

from mpnet.errors import FormatError
from mpnet.formats.bounded import file_size, read_bounded
from mpnet.formats.cache import FileCache
from mpnet.formats.file_digest import file_state, known_digest, remember_digest
from mpnet.spec.network import ConvolutionSpec, NetworkSpec
from mpnet.spec.weights import ConvolutionWeights, Floats, Weights

_VERSION = struct.Struct("<3i")
_MAX_VERSION = 1000
_HEADER_BYTES = _VERSION.size + 8


def read_weights(path: str | Path, network: NetworkSpec) -> Weights:
    """Read the weights of `network`; the sizes are compared before anything is loaded.

    Raises: FormatError when the file is too short, too long, or holds values that are not finite or negative variances.
    """
    size_bytes = file_size(path)
    longest = _HEADER_BYTES + 4 * network.parameters
    if size_bytes > longest:
        raise _wrong_size(path, network, size_bytes, longest)
    return parse_weights(read_bounded(path, longest, "weights file"), network, str(path))


def open_weights(path: str | Path, network: NetworkSpec, cache: FileCache | None) -> Weights:
    """As `read_weights`; a file that the cache knows, and that nobody touched since, is read when its values are asked for.

    Until then it costs a look at its header.
    """
    state = file_state(path) if cache is not None else None
    if cache is None or state is None:
        return read_weights(path, network)
    digest = known_digest(state, cache)
    if digest is None:
        weights = read_weights(path, network)
        remember_digest(state, weights.digest, cache)
        return weights
    with open(path, "rb") as file:
        version, seen, _ = _parse_header(file.read(_HEADER_BYTES), file_size(path), network, str(path))
    return Weights(_Unread(path, network, digest), version, seen, str(path), digest)


class _Unread(Mapping[int, ConvolutionWeights]):
    """The layers of a file, which is read on first use; another process gets what was read."""

    def __init__(self, path: str | Path, network: NetworkSpec, digest: str) -> None:
        self._path, self._network, self._digest = path, network, digest
        self._lock = threading.Lock()
        self._read: Mapping[int, ConvolutionWeights] | None = None

    def _layers(self) -> Mapping[int, ConvolutionWeights]:
        with self._lock:
            if self._read is None:
                weights = read_weights(self._path, self._network)
                if weights.digest != self._digest:
                    raise FormatError(f"{self._path}: was changed while it was in use; start again")
                self._read = weights.layers
            return self._read

    def __getitem__(self, index: int) -> ConvolutionWeights:
        return self._layers()[index]

    def __iter__(self) -> Iterator[int]:
        return (layer.index for layer in self._network.convolutions)

    def __len__(self) -> int:
        return len(self._network.convolutions)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self._layers()),)


def parse_weights(content: bytes, network: NetworkSpec, source: str = "<bytes>") -> Weights:
    """The weights of `network` from the bytes of a file."""
    version, seen, start = _parse_header(content, len(content), network, source)
    values = np.frombuffer(content, "<f4", offset=start).astype(np.float32)
    layers, position = {}, 0
    for layer in network.convolutions:
        layers[layer.index], position = _read_layer(values, position, layer, source)
    return Weights(layers, version, seen, source, hashlib.sha256(content).hexdigest())


def _parse_header(
    content: bytes, size_bytes: int, network: NetworkSpec, source: str
) -> tuple[tuple[int, int, int], int, int]:
    """(version, images seen, position of the first value) of a file of this size, which begins with `content`."""
    if size_bytes < _VERSION.size + 4 or len(content) < min(size_bytes, _HEADER_BYTES):
        raise FormatError(f"{source}: {size_bytes} bytes are too few for the header of a weights file; is it complete?")
    version = _VERSION.unpack_from(content)
    if not all(0 <= number <= _MAX_VERSION for number in version):
        raise FormatError(f"{source}: version {version} in the header; this is no Darknet weights file")
    start = _VERSION.size + (8 if version[0] * 10 + version[1] >= 2 else 4)
    expected = start + 4 * network.parameters
    if size_bytes != expected:
        raise _wrong_size(source, network, size_bytes, expected)
    return version, int.from_bytes(content[_VERSION.size : start], "little"), start


def _read_layer(values: Floats, position: int, layer: ConvolutionSpec, source: str) -> tuple[ConvolutionWeights, int]:
    def take(name: str, shape: tuple[int, ...]) -> Floats:
        nonlocal position
        count = int(np.prod(shape))
        part = values[position : position + count]
        finite = np.isfinite(part)
        if not finite.all():
            bad = position + int(np.argmin(finite))
            raise FormatError(
                f"{source}: {name} of layer {layer.index} ({layer.name}) hold {values[bad]} at value {bad}; "
                "the file is damaged or belongs to another cfg"
            )
        position += count
        # Own aligned memory per array, so that the file's bytes can be freed.
        return np.array(part.reshape(shape))

    channels = (layer.filters,)
    biases = take("biases", channels)
    scales = means = variances = None
    if layer.batch_normalize:
        scales, means, variances = take("scales", channels), take("means", channels), take("variances", channels)
        if (variances < 0).any():
            raise FormatError(
                f"{source}: a variance of layer {layer.index} ({layer.name}) is negative ({variances.min():g}); "
                "the file is damaged or belongs to another cfg"
            )
    return ConvolutionWeights(biases, take("weights", layer.weight_shape), scales, means, variances), position


def _wrong_size(source: str | Path, network: NetworkSpec, found: int, expected: int) -> FormatError:
    what = "too short" if found < expected else "too long"
    return FormatError(
        f"{source}: {what}: {found} bytes, but {network.source} needs {expected} ({network.parameters} values); "
        "use the weights that belong to this cfg, or download them again"
    )
