"""ncnn runs what mpnet exports, and gives what mpnet gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpnet.backends import Model, backend
from mpnet.errors import EngineError
from mpnet.export import Configuration, Exported, export
from tests.backends.foreign_cases import (
    ODD,
    SYMMETRIC,
    batch_of,
    configured,
    head_error,
    one_layer,
    own,
    random_keys,
    trained,
    with_key,
)
from tests.networks import tiny_cfg

pytest.importorskip("ncnn")


def _open(configuration: Configuration) -> Model:
    return backend("ncnn").load(export("ncnn", configuration), 1)


def _error(configuration: Configuration) -> float:
    batch = batch_of(configuration.network)
    return head_error(_open(configuration).forward(batch), own(configuration, batch))


@pytest.mark.parametrize(("key", "most"), [("f", 2e-6), ("w", 2e-6), ("h", 2e-3), ("q", 2e-2)])
def test_every_kind_of_layer_at_every_precision(key: str, most: float) -> None:
    assert _error(configured(ODD, key, SYMMETRIC)) <= most


def test_int8_gives_the_same_sums() -> None:
    # Exact but for roundings of float32: the same codes, the same whole numbers, then a product and a sum.
    for more in ("size=1\n", "size=3\npad=1\nstride=2\n", "size=3\npad=1\ngroups=2\n"):
        text = one_layer(f"[convolutional]\nfilters=16\nactivation=leaky\n{more}")
        assert _error(configured(text, "q", SYMMETRIC)) <= 1e-6


@pytest.mark.parametrize("key", ["f", "h", "q"])
def test_a_mean_over_everything_and_what_follows(key: str) -> None:
    text = one_layer("[convolutional]\nfilters=8\nsize=3\npad=1\nactivation=leaky\n[avgpool]\n"
                     "[convolutional]\nfilters=6\nsize=1\nactivation=linear\n")
    assert _error(configured(text, key, SYMMETRIC)) <= (2e-3 if key == "h" else 2e-6)


def test_mixed_configurations_stay_within_what_is_promised() -> None:
    base = configured(tiny_cfg(), "q", SYMMETRIC)
    assert max(_error(with_key(base, key)) for key in random_keys(base, 6)) <= 2e-2


def test_int8_tensors_between_layers_without_weights_mean_their_codes() -> None:
    text = one_layer("[maxpool]\nsize=2\nstride=2\nint8=1\n[convolutional]\nfilters=6\nsize=1\nactivation=linear\n")
    assert _error(configured(text, "f", SYMMETRIC)) <= 2e-6


def test_pictures_of_a_batch_do_not_meet() -> None:
    configuration = configured(tiny_cfg(), "q", SYMMETRIC)
    batch, model = batch_of(configuration.network, 3), _open(configuration)
    together = model.forward(batch)
    for number in range(3):
        for head, alone in zip(together, model.forward(batch[number : number + 1]), strict=True):
            np.testing.assert_array_equal(head[number : number + 1], alone)


def test_it_says_what_runs() -> None:
    network = configured(tiny_cfg(), "f").network
    key = "fhq" + "f" * (len(network.convolutions) - 3)
    executed = _open(configured(tiny_cfg(), key, SYMMETRIC)).executed()
    assert executed is not None
    assert sorted(executed) == [layer.index for layer in network.convolutions]
    assert [executed[layer.index][0] for layer in network.convolutions[:3]] == ["fp32", "fp32", "int8"]


def test_what_is_no_network_is_one_line() -> None:
    files = {".param": b"nonsense\n", ".bin": b"", ".json": b'{"heads": []}'}
    with pytest.raises(EngineError, match=r"^ncnn .* refuses the \.param file$"):
        backend("ncnn").load(Exported(files), 1)


def test_trained_network(shared_data: Path) -> None:
    configuration, batch = trained(shared_data, "aix", "q", SYMMETRIC)
    full = with_key(configuration, "f" * 11)
    assert head_error(_open(full).forward(batch), own(full, batch)) <= 2e-6
    for key in ("q" * 11, *random_keys(configuration, 3)):
        mixed = with_key(configuration, key)
        assert head_error(_open(mixed).forward(batch), own(mixed, batch)) <= 2e-2
