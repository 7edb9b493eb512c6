"""Reads Darknet's weights files.

Header: int32 major, minor, revision; then the images seen as uint64 when major * 10 + minor >= 2, else as int32. Then
per convolution, in order: biases; with batch normalisation scales, means, variances; then weights (out, in / groups,
kh, kw). All little-endian float32.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np

from mpnet.errors import FormatError
from mpnet.formats.bounded import file_size, read_bounded
from mpnet.spec.network import ConvolutionSpec, NetworkSpec
from mpnet.spec.weights import ConvolutionWeights, Floats, Weights

_VERSION = struct.Struct("<3i")
_MAX_VERSION = 1000


def read_weights(path: str | Path, network: NetworkSpec) -> Weights:
    """Read the weights of `network`; the sizes are compared before anything is loaded.

    Raises: FormatError when the file is too short, too long, or holds values that are not finite or negative variances.
    """
    size_bytes = file_size(path)
    longest = _VERSION.size + 8 + 4 * network.parameters
    if size_bytes > longest:
        raise _wrong_size(path, network, size_bytes, longest)
    return parse_weights(read_bounded(path, longest, "weights file"), network, str(path))


def parse_weights(content: bytes, network: NetworkSpec, source: str = "<bytes>") -> Weights:
    """The weights of `network` from the bytes of a file."""
    if len(content) < _VERSION.size + 4:
        raise FormatError(f"{source}: {len(content)} bytes are too few for the header of a weights file; is it complete?")
    version = _VERSION.unpack_from(content)
    if not all(0 <= number <= _MAX_VERSION for number in version):
        raise FormatError(f"{source}: version {version} in the header; this is no Darknet weights file")
    seen_bytes = 8 if version[0] * 10 + version[1] >= 2 else 4
    start = _VERSION.size + seen_bytes
    expected = start + 4 * network.parameters
    if len(content) != expected:
        raise _wrong_size(source, network, len(content), expected)
    seen = int.from_bytes(content[_VERSION.size : start], "little")
    values = np.frombuffer(content, "<f4", offset=start).astype(np.float32)
    layers, position = {}, 0
    for layer in network.convolutions:
        layers[layer.index], position = _read_layer(values, position, layer, source)
    return Weights(layers, version, seen, source, hashlib.sha256(content).hexdigest())


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
