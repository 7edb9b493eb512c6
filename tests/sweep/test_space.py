# SPDX-License-Identifier: MIT
"""Spaces: what may be chosen, how much that is, and what cannot be meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.config.experiment import AUTO_TIES, BLOCK_TIES, OptionRange, SpaceSection
from mpnet.errors import ConfigError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.model.quantization import QuantizationOptions, WeightOptions
from mpnet.sweep.problem.space import Variable, build_space
from tests.networks import small_cfg
from tests.sweep.sweep_networks import tiny_yolo, yolov3_tiny

PRECISIONS = ("fp32", "int8")


def test_every_layer_with_weights_chooses_for_itself() -> None:
    space = build_space(tiny_yolo(), PRECISIONS)
    keys = list(space.all_keys())
    assert space.size == len(keys) == len(set(keys)) == 2**6
    assert keys[0] == "ffffff"
    assert keys[1] == "fffffq"
    assert keys[-1] == "qqqqqq"


def test_the_size_of_a_hopeless_space_is_known_at_once() -> None:
    assert build_space(yolov3_tiny(), ("fp32", "fp16", "int8")).size == 3**13


def test_selectors_narrow_and_pin_layers() -> None:
    section = SpaceSection(layers=(("first", ("fp32",)), ("heads", ("fp16", "fp32"))))
    space = build_space(tiny_yolo(), PRECISIONS, section)
    assert [variable.codes for variable in space.variables] == ["f", "fq", "fq", "hf", "fq", "hf"]
    assert space.highest() == "ffffff"
    assert space.lowest() == "fqqhqh"


def test_tied_layers_always_agree() -> None:
    section = SpaceSection(tied=(("3x3",), ("*/yolo-*", "8")))
    space = build_space(tiny_yolo(), PRECISIONS, section)
    assert [variable.positions for variable in space.variables] == [(0, 1, 2), (3, 4, 5)]
    assert list(space.all_keys()) == ["ffffff", "fffqqq", "qqqfff", "qqqqqq"]
    assert "ffqqqq" not in space


def test_groups_that_overlap_become_one() -> None:
    space = build_space(tiny_yolo(), PRECISIONS, SpaceSection(tied=(("0", "2"), ("2", "4"))))
    assert space.variables[0].positions == (0, 1, 2)
    assert space.size == 2**4


@pytest.mark.parametrize(("sources", "positions"), [("aab", [(0, 1), (2,)]), ("aba", [(0, 2), (1,)]), ("", [(0,), (1,), (2,)])])
def test_layers_of_one_node_of_the_imported_file_are_tied(sources: str, positions: list[tuple[int, ...]]) -> None:
    layers = [f"[convolutional]\nfilters=2\nsize=1\n{f'source={sources[i]},x' if sources else ''}\n" for i in range(3)]
    network = parse_cfg("[net]\nwidth=8\nheight=8\nchannels=3\n" + "".join(layers))
    space = build_space(network, PRECISIONS, SpaceSection(tied=AUTO_TIES))
    assert [variable.positions for variable in space.variables] == positions


def test_layers_of_one_block_are_tied_and_others_stand_alone() -> None:
    sources = ("/model.0/conv/Conv", "/model.1/cv1/conv/Conv", "/model.1/m.0/cv2/conv/Conv", "")
    layers = [f"[convolutional]\nfilters=2\nsize=1\n{f'source={source}' if source else ''}\n" for source in sources]
    network = parse_cfg("[net]\nwidth=8\nheight=8\nchannels=3\n" + "".join(layers))
    space = build_space(network, PRECISIONS, SpaceSection(tied=BLOCK_TIES))
    assert [variable.positions for variable in space.variables] == [(0,), (1, 2), (3,)]


def test_options_multiply_the_space() -> None:
    values = ("per_channel", "per_tensor")
    options = tuple(QuantizationOptions(weights=WeightOptions(granularity=value)) for value in values)
    section = SpaceSection(quantization=(OptionRange("weights.granularity", values, options),))
    space = build_space(tiny_yolo(), PRECISIONS, section)
    assert space.size == 2 * 2**6
    assert [row.text for row in space.option_sets] == ["weights.granularity=per_channel", "weights.granularity=per_tensor"]
    assert space.option_sets[1].options.weights.granularity == "per_tensor"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (SpaceSection(layers=(("99", ("fp32",)),)), r"sweep.space.layers.99: .*layers 0 to"),
        (SpaceSection(layers=(("firts", ("fp32",)),)), r"sweep.space.layers.firts: .*did you mean 'first'"),
        (SpaceSection(layers=(("1", ("fp32",)),)), r"layer 1 \(maxpool-1\) has no weights"),
        (SpaceSection(layers=(("0", ("int9",)),)), "unknown precision 'int9'"),
        (SpaceSection(layers=(("0", ()),)), "sweep.space.layers.0: is empty"),
        (SpaceSection(layers=(("all", ("int8",)),)), "every layer is pinned"),
        (SpaceSection(tied=(("0", "nowhere"),)), "sweep.space.tied: .*'nowhere'"),
        (
            SpaceSection(layers=(("0", ("fp16", "int8")),), tied=(("0", "2"),)),
            "layers 0 and 2 are tied but may have fp16, int8 and fp32, int8",
        ),
    ],
)
def test_what_cannot_be_meant_is_an_error(section: SpaceSection, message: str) -> None:
    with pytest.raises(Exception, match=message) as error:
        build_space(tiny_yolo(), PRECISIONS, section)
    assert isinstance(error.value, (ConfigError, ValueError))


def test_no_choice_at_all_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"sweep.precisions: is empty"):
        build_space(tiny_yolo(), ())
    with pytest.raises(ConfigError, match="nothing to choose"):
        build_space(tiny_yolo(), ("int8",))


def test_a_key_of_another_space_is_refused() -> None:
    space = build_space(tiny_yolo(), PRECISIONS)
    for key in ("fffff", "fffffff", "fffffh", ""):
        with pytest.raises(ConfigError, match="no configuration of this space"):
            space.codes_of(key)


def test_a_target_file_limits_layers_and_ties_them(tmp_path: Path) -> None:
    network = parse_cfg(small_cfg(), "net.cfg")
    path = tmp_path / "chip.yaml"
    path.write_text(
        "what: a chip\nprecisions: [int16, int8]\nlayers: {first: int16}\none_precision: [tensor, route, maxpool, upsample]\n"
    )
    space = build_space(network, ("fp32", "int16", "int8"), SpaceSection(target=str(path)))
    assert space.variables == (Variable((0,), "i"), Variable((1,), "iq"), Variable((2, 3), "iq"))
    with_own_tie = SpaceSection(target=str(path), tied=(("2", "4"),))
    assert build_space(network, ("int16", "int8"), with_own_tie).variables[1:] == (Variable((1, 2, 3), "iq"),)
    with pytest.raises(
        ConfigError, match=r"chip.yaml runs layer 2 in int16, int8, and the sweep may choose fp32, fp16; name one"
    ):
        build_space(network, ("fp32", "fp16"), SpaceSection(target=str(path)))
    pinned = SpaceSection(target=str(path), layers=(("4", ("int16",)), ("9", ("int8",))))
    with pytest.raises(ConfigError, match=r"layers 4, 9 have one precision in .*chip.yaml, and no choice in common"):
        build_space(network, ("int16", "int8"), pinned)
