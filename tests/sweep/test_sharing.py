# SPDX-License-Identifier: MIT
"""Work counted in closed form, by listing, and as published for the networks that matter."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from mpnet.config.experiment import SpaceSection
from mpnet.formats.cfg.read import read_cfg
from mpnet.sweep.evaluate.sharing import ancestors, forward_equivalents, forward_equivalents_of
from mpnet.sweep.problem.space import build_space
from tests.sweep.sweep_networks import branches, tiny_yolo, yolov3_tiny

TWO_PRECISIONS, THREE_PRECISIONS = ("fp32", "int8"), ("fp32", "fp16", "int8")


def test_a_layer_depends_on_what_its_input_came_through() -> None:
    ancestors_of = ancestors(tiny_yolo())
    assert ancestors_of[0] == (0,)
    assert ancestors_of[6] == (0, 1, 2, 3)  # the first head, after its own convolution
    assert ancestors_of[12] == (0, 1, 2, 4, 5)  # the second one does not depend on the first one's


@pytest.mark.parametrize("network", [tiny_yolo(), branches()])
@pytest.mark.parametrize(
    "section", [SpaceSection(), SpaceSection(tied=(("first", "last"),)), SpaceSection(layers=(("1x1", ("fp16",)),))]
)
def test_the_closed_form_is_the_count(network: object, section: SpaceSection) -> None:
    space = build_space(network, TWO_PRECISIONS, section)
    assert forward_equivalents(network, space) == forward_equivalents_of(network, space.all_keys())


def test_one_configuration_is_one_forward_pass() -> None:
    network = yolov3_tiny()
    assert forward_equivalents_of(network, ["f" * 13]) == 1
    assert forward_equivalents_of(network, ["f" * 13, "f" * 13]) == 1


def test_two_heads_are_independent_given_the_trunk() -> None:
    network = tiny_yolo()
    first_head, second_head = network.layers[5], network.layers[11]
    changed_first = forward_equivalents_of(network, ["ffffff", "fffqff"]) - 1
    changed_both = forward_equivalents_of(network, ["ffffff", "fffqfq"]) - 1
    assert changed_first == Fraction(first_head.macs, network.macs)
    assert changed_both == Fraction(first_head.macs + second_head.macs, network.macs)


def test_yolov3_tiny_costs_what_is_published() -> None:
    network = yolov3_tiny()
    assert forward_equivalents(network, build_space(network, TWO_PRECISIONS)) == pytest.approx(350, rel=0.01)
    assert forward_equivalents(network, build_space(network, THREE_PRECISIONS)) == pytest.approx(18_000, rel=0.02)


def test_the_aix_network_costs_what_is_published(shared_data: Path) -> None:
    network = read_cfg(shared_data / "aix2022" / "yolov3-tiny-aix2022.cfg")
    assert round(forward_equivalents(network, build_space(network, TWO_PRECISIONS))) == 129
    assert round(forward_equivalents(network, build_space(network, THREE_PRECISIONS)), -1) == 4860
