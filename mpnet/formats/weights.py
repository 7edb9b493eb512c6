# SPDX-License-Identifier: MIT
"""Darknet's weights files, read and written.

Header: int32 major, minor, revision; then the images seen as uint64 when major * 10 + minor >= 2, else as int32 (some
programs take the other one; the file's size tells). Then
per convolution, in order: biases; with batch normalisation scales, means, variances; then weights (out, in / groups,
kh, kw). [connected]: weights (out, in) before scales, means, variances. [batchnorm]: biases, scales, means, variances.
[shortcut] with weights and [implicit]: those. All little-endian float32.
"""

from __future__ import annotations

import hashlib
import math
import struct
import threading
from pathlib import Path
from typing import Callable, Iterator, Mapping, Sequence, TypeVar

import numpy as np

from mpnet.errors import FormatError
from mpnet.formats.files.bounded import file_size, read_bounded
from mpnet.formats.files.cache import FileCache
from mpnet.formats.files.digest import file_state, known_digest, remember_digest
from mpnet.formats.files.foreign import foreign_content, foreign_model
from mpnet.model.layers import (
    BatchnormSpec,
    ConnectedSpec,
    ConvolutionSpec,
    DeconvolutionalSpec,
    ImplicitSpec,
    LayerSpec,
    ShortcutSpec,
)
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import ConvolutionWeights, Floats, Weights

_Value = TypeVar("_Value")
_VERSION = struct.Struct("<3i")
_MAX_VERSION = 1 << 20
_OLDEST_TRANSPOSED = 1000
"""From versions above on the matrices of [connected] are stored the other way round."""
_HEADER_BYTES = _VERSION.size + 8
_OTHER_START = _HEADER_BYTES + _VERSION.size + 4
"""Less where one of the two headers ends it is where the other does."""
_MAX_ZEROS = 1024
"""Values at a file's end that may be 0: programs reserve space for a download, and leave zeros where it stops early."""


def read_weights(path: str | Path, network: NetworkSpec) -> Weights:
    """Read the weights of `network`; the sizes are compared before anything is loaded.

    Raises: FormatError when the file is too short, too long, or holds values that are not finite or negative variances.
    """
    size_bytes = file_size(path)
    longest = _HEADER_BYTES + 4 * network.parameters
    if size_bytes > longest:
        _check_kind(path)
        raise _wrong_size(path, network, size_bytes, longest)
    return parse_weights(read_bounded(path, longest, "weights file"), network, str(path))


def open_weights(path: str | Path, network: NetworkSpec, cache: FileCache | None) -> Weights:
    """Open weights as `read_weights`; a file that is in the cache, untouched since, is read when its values are asked for.

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
    unread = _File(path, network, digest)
    layers = _Unread(unread, network.convolutions, lambda weights: weights.layers)
    values = _Unread(unread, network.valued, lambda weights: weights.values)
    return Weights(layers, version, seen, str(path), digest, values)


class _File:
    """A weights file, which is read on first use."""

    def __init__(self, path: str | Path, network: NetworkSpec, digest: str) -> None:
        self._path, self.network, self._digest = path, network, digest
        self._lock = threading.Lock()
        self._read: Weights | None = None

    @property
    def weights(self) -> Weights:
        """Return the weights in the file, read on first use. Raises: FormatError."""
        with self._lock:
            if self._read is None:
                weights = read_weights(self._path, self.network)
                if weights.digest != self._digest:
                    raise FormatError(f"{self._path}: was changed while it was in use; start again")
                self._read = weights
            return self._read


class _Unread(Mapping[int, _Value]):
    """The values of some layers in a file that is read on first use; another process gets what was read.

    part: of all weights, those of these layers.
    """

    def __init__(self, file: _File, layers: Sequence[LayerSpec], part: Callable[[Weights], Mapping[int, _Value]]) -> None:
        self._file, self._layers, self._part = file, layers, part

    def __getitem__(self, index: int) -> _Value:
        return self._part(self._file.weights)[index]

    def __iter__(self) -> Iterator[int]:
        return (layer.index for layer in self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __reduce__(self) -> tuple[type, tuple[Mapping[int, _Value]]]:
        return dict, (dict(self._part(self._file.weights)),)


def parse_weights(content: bytes, network: NetworkSpec, source: str = "<bytes>") -> Weights:
    """Parse the weights of `network` from the bytes of a file."""
    version, seen, start = _parse_header(content, len(content), network, source)
    numbers = np.frombuffer(content, "<f4", offset=start).astype(np.float32)
    present = np.flatnonzero(numbers.view(np.uint32))  # as bits: a number may be none
    zeros = numbers.size - 1 - int(present[-1]) if present.size else numbers.size
    if zeros > _MAX_ZEROS:
        raise FormatError(
            f"{source}: its last {zeros:,} of {numbers.size:,} values are all 0, as where a download stopped early; "
            "download it again"
        )
    reader = _Reader(numbers, source)
    transposed = version[0] > _OLDEST_TRANSPOSED or version[1] > _OLDEST_TRANSPOSED
    layers: dict[int, ConvolutionWeights] = {}
    values: dict[int, Floats] = {}
    for layer in network.layers:
        if isinstance(layer, ConvolutionSpec):
            layers[layer.index] = _convolution(reader, layer, layers, transposed)
        elif isinstance(layer, ImplicitSpec | ShortcutSpec) and layer in network.valued:
            shape = layer.value_shape
            values[layer.index] = reader.take(layer, "weights", shape) if layer.load else np.zeros(shape, np.float32)
    return Weights(layers, version, seen, source, hashlib.sha256(content).hexdigest(), values)


def _parse_header(content: bytes, size_bytes: int, network: NetworkSpec, source: str) -> tuple[tuple[int, int, int], int, int]:
    """Return (version, images seen, position of the first value) of a file of this size, which begins with `content`."""
    foreign = foreign_content(content)
    if foreign:
        raise FormatError(f"{source}: is {foreign}")
    if size_bytes < _VERSION.size + 4 or len(content) < min(size_bytes, _HEADER_BYTES):
        raise FormatError(f"{source}: {size_bytes} bytes are too few for the header of a weights file; is it complete?")
    version = _VERSION.unpack_from(content)
    # Only matrices of [connected] are stored otherwise by versions above 1000.
    newest = _MAX_VERSION if any(isinstance(layer, ConnectedSpec) for layer in network.layers) else _OLDEST_TRANSPOSED
    if not all(0 <= number <= newest for number in version):
        raise FormatError(
            f"{source}: {foreign_model(source) or f'version {version} in the header; this is no Darknet weights file'}"
        )
    start = _VERSION.size + (8 if version[0] * 10 + version[1] >= 2 else 4)
    if max(version[:2]) >= _OLDEST_TRANSPOSED and size_bytes == _VERSION.size + 4 + 4 * network.parameters:
        start = _VERSION.size + 4  # as the original program writes such versions
    other = _OTHER_START - start
    if size_bytes == other + 4 * network.parameters and (content[16:20] == bytes(4)) == (other == _HEADER_BYTES):
        # Programs write the count of images as long as their own integers are, whatever version they state. The count never
        # reaches 2^32, so its upper half is 0, which the first bias is not.
        start = other
    expected = start + 4 * network.parameters
    if size_bytes != expected:
        raise _wrong_size(source, network, size_bytes, expected)
    return version, int.from_bytes(content[_VERSION.size : start], "little"), start


class _Reader:
    """A reader that takes one block after the other."""

    def __init__(self, values: Floats, source: str) -> None:
        self._values = values
        self._source = source
        self._position = 0

    def take(self, layer: LayerSpec, name: str, shape: tuple[int, ...]) -> Floats:
        """Return the next block. Raises: FormatError for values that are not finite, and for negative variances."""
        part = self._values[self._position : self._position + math.prod(shape)]
        finite = np.isfinite(part)
        if not finite.all():
            bad = int(np.argmin(finite))
            raise FormatError(
                f"{self._source}: {name} of layer {layer.index} ({layer.name}) hold {part[bad]} at value "
                f"{self._position + bad}; the file is damaged or belongs to another cfg"
            )
        if name == "variances" and (part < 0).any():
            raise FormatError(
                f"{self._source}: a variance of layer {layer.index} ({layer.name}) is negative ({part.min():g}); "
                "the file is damaged or belongs to another cfg"
            )
        self._position += part.size
        # Own aligned memory per array, so that the file's bytes can be freed.
        return np.array(part.reshape(shape))


def _convolution(
    reader: _Reader, layer: ConvolutionSpec, before: Mapping[int, ConvolutionWeights], transposed: bool
) -> ConvolutionWeights:
    """Read the blocks of one layer in the order of its section, as a convolution over its NHWC input reads them."""
    if layer.shares is not None:
        return before[layer.shares]
    filters = (layer.filters,)
    if not layer.load:
        # Darknet leaves its start values, whose weights are random.
        return _unloaded(layer)
    biases = reader.take(layer, "biases", filters)
    connected = isinstance(layer, ConnectedSpec)
    ready = _weights(reader, layer, transposed) if connected else None
    norm: tuple[Floats, ...] = ()
    if layer.batch_normalize and layer.load_scales:
        norm = tuple(reader.take(layer, name, filters) for name in ("scales", "means", "variances"))
    elif layer.batch_normalize:
        norm = (np.ones(filters, np.float32), np.zeros(filters, np.float32), np.zeros(filters, np.float32))
    weights = _weights(reader, layer, transposed) if ready is None else ready
    return ConvolutionWeights(biases, weights, *norm)


def _unloaded(layer: ConvolutionSpec) -> ConvolutionWeights:
    zeros, ones = np.zeros(layer.filters, np.float32), np.ones(layer.filters, np.float32)
    norm = (ones, zeros, zeros) if layer.batch_normalize else ()
    return ConvolutionWeights(zeros, np.zeros(layer.weight_shape, np.float32), *norm)


def _weights(reader: _Reader, layer: ConvolutionSpec, transposed: bool) -> Floats:
    shape = layer.weight_shape
    filters, inputs, size, _ = shape
    if isinstance(layer, BatchnormSpec):
        return np.ones(shape, np.float32)
    if isinstance(layer, DeconvolutionalSpec):
        mirrored = reader.take(layer, "weights", (inputs, filters, size, size))[:, :, ::-1, ::-1]
        return np.ascontiguousarray(mirrored.transpose(1, 0, 2, 3))
    if isinstance(layer, ConnectedSpec):
        # Darknet's inputs are (channels, height, width), the kernels' (height, width, channels).
        height, width, channels = layer.in_shape
        if transposed:
            matrix = reader.take(layer, "weights", (inputs, filters)).T
        else:
            matrix = reader.take(layer, "weights", (filters, inputs))
        ordered = matrix.reshape(filters, channels, height, width).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(ordered.reshape(shape))
    if layer.flipped:
        turned = reader.take(layer, "weights", (inputs * size * size, filters))
        return np.ascontiguousarray(turned.T.reshape(shape))
    return reader.take(layer, "weights", shape)


def _check_kind(path: str | Path) -> None:
    """Check the beginning of a file that is too long. Raises: FormatError where it says what the file is instead."""
    with open(path, "rb") as file:
        foreign = foreign_content(file.read(_HEADER_BYTES))
    foreign = f"is {foreign}" if foreign else foreign_model(path)
    if foreign:
        raise FormatError(f"{path}: {foreign}")


def _wrong_size(source: str | Path, network: NetworkSpec, size_bytes: int, expected: int) -> FormatError:
    what = "too short" if size_bytes < expected else "too long"
    return FormatError(
        f"{source}: {what}: {size_bytes} bytes, but {network.source} needs {expected} ({network.parameters} values); "
        "use the weights that belong to this cfg, or download them again"
    )


def weights_content(weights: Weights, network: NetworkSpec) -> bytes:
    """Return the content of the file of these weights, always with the 64-bit header."""
    version = weights.version if weights.version[0] * 10 + weights.version[1] >= 2 else (0, 2, 0)
    parts = [struct.pack("<3i", *version), struct.pack("<Q", weights.seen)]
    for layer in network.layers:
        arrays: list[Floats | None] = []
        if isinstance(layer, ConvolutionSpec):
            if layer.shares is None and layer.load:
                arrays = _blocks(layer, weights.layers[layer.index])
        elif layer.parameters:
            arrays = [weights.values[layer.index]]
        parts += [np.ascontiguousarray(array, "<f4").tobytes() for array in arrays if array is not None]
    return b"".join(parts)


def _blocks(layer: ConvolutionSpec, convolution: ConvolutionWeights) -> list[Floats | None]:
    """Yield the blocks in the order of the file."""
    norm = [convolution.scales, convolution.means, convolution.variances] if layer.batch_normalize and layer.load_scales else []
    if isinstance(layer, BatchnormSpec):
        return [convolution.biases, *norm]
    if isinstance(layer, ConnectedSpec):
        height, width, channels = layer.in_shape
        ordered = convolution.weights.reshape(layer.filters, height, width, channels).transpose(0, 3, 1, 2)
        return [convolution.biases, ordered, *norm]
    weights = convolution.weights
    if isinstance(layer, DeconvolutionalSpec):
        weights = weights.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    elif layer.flipped:
        weights = weights.reshape(layer.filters, -1).T
    return [convolution.biases, *norm, weights]
