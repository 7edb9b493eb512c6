# SPDX-License-Identifier: MIT
"""The classes of a data set, matched with those of a network by their names.

Files number classes in orders of their own and spell them in ways of their own; a match by position alone would give wrong
figures in silence. Names decide, position only where no name contradicts it, and whatever is not plainly equal is said.
"""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass
from typing import Callable, Sequence

from mpnet.errors import DataError
from mpnet.formats.files.paths import compose
from mpnet.messages import few, shown

# Spellings of one class in the lists of COCO, Pascal VOC, Darknet and LVIS, without case, blanks and marks.
_SYNONYMS = (
    ("motorbike", "motorcycle"),
    ("aeroplane", "airplane", "plane"),
    ("sofa", "couch"),
    ("tvmonitor", "tv", "television"),
    ("diningtable", "table"),
    ("cellphone", "mobilephone"),
    ("donut", "doughnut"),
    ("hairdrier", "hairdryer"),
    ("bike", "bicycle"),
    ("pedestrian", "person", "human"),
    ("trafficlight", "stoplight"),
    ("pottedplant", "houseplant"),
)
_SYNONYM_OF = {word: group[0] for group in _SYNONYMS for word in group}


@dataclass(frozen=True)
class ClassMatch:
    """The class of the network that each class of a data set is.

    class_indices: by position in the data set's list, None for a class that the network does not have.
    notes:         what a reader should know, one sentence each; none where all names are equal.
    """

    class_indices: tuple[int | None, ...]
    notes: tuple[str, ...] = ()


def match_classes(labels: Sequence[str], classes: Sequence[str], counts: Sequence[int], source: str) -> ClassMatch:
    """Match the classes of a data set with those of a network.

    labels:  names that the data set's file gives, in the order of its numbers.
    classes: names of the network's classes, in index order.
    counts:  labelled objects of each of `labels`.
    source:  the data set's file, for messages.

    Names that are equal match, then those that differ in case, blanks and marks, then known synonyms. What is left over is
    matched by position only where no matched name contradicts the positions, or where one name is left over on both sides.
    Labels without objects, and labels beside a network whose every class is found, are left out.
    Raises: DataError where labelled objects would be left without a class, with the names in question.
    """
    if tuple(labels) == tuple(classes):
        return ClassMatch(tuple(range(len(classes))))
    matched: dict[int, int] = {}
    respelt: list[str] = []
    for spelling in (str, _normalize, _canonical):
        for label, index in _unique_pairs(labels, classes, matched, spelling):
            matched[label] = index
            if spelling is not str:
                respelt.append(f"{labels[label]} as {classes[index]}")
    notes = [f"classes that the data set spells otherwise than the network: {few(respelt)}"] if respelt else []
    remaining = [label for label in range(len(labels)) if label not in matched]
    unfilled = sorted(set(range(len(classes))) - set(matched.values()))
    used = [label for label in remaining if counts[label]]
    if used and unfilled:
        pairs = _pairs_by_position(labels, classes, matched, remaining, unfilled, used)
        if pairs is None:
            raise DataError(_contradiction(labels, classes, counts, source, used, unfilled, bool(matched)))
        matched.update(pairs)
        named_pairs = few([f"{shown(labels[label])} as {shown(classes[index])}" for label, index in pairs.items()])
        notes.append(f"classes whose names differ are matched by their order: {named_pairs}; check data set and model.names")
        remaining = [label for label in remaining if label not in pairs]
    if remaining:
        objects = sum(counts[label] for label in remaining)
        noun, verb = ("class", "is") if len(remaining) == 1 else ("classes", "are")
        left_out = few([shown(labels[label]) for label in remaining])
        notes.append(f"{len(remaining)} {noun} that the network does not have {verb} left out ({objects} objects): {left_out}")
    return ClassMatch(tuple(matched.get(label) for label in range(len(labels))), tuple(notes))


def find_class(label: str, classes: Sequence[str]) -> int | None:
    """Return the index of the class that a name means, None for none.

    Names are equal, or another spelling of one class alone.

    """
    if label in classes:
        return classes.index(label)
    for spelling in (_normalize, _canonical):
        indices = [index for index, name in enumerate(classes) if spelling(name) == spelling(label)]
        if len(indices) == 1:
            return indices[0]
    return None


def _normalize(name: str) -> str:
    """Return a name without case, blanks and marks; the name itself where nothing else is in it."""
    return "".join(letter for letter in compose(name).casefold() if letter.isalnum()) or name


def _canonical(name: str) -> str:
    normalized = _normalize(name)
    return _SYNONYM_OF.get(normalized, normalized)


def _unique_pairs(
    labels: Sequence[str], classes: Sequence[str], matched: dict[int, int], spelling: Callable[[str], str]
) -> list[tuple[int, int]]:
    """Return pairs (label, class) of those not matched yet whose spelling is equal, and of nobody else's on either side."""
    by_label = [(spelling(name), position) for position, name in enumerate(labels) if position not in matched]
    filled = set(matched.values())
    by_class = [(spelling(name), index) for index, name in enumerate(classes) if index not in filled]
    label_counts, class_counts = Counter(text for text, _ in by_label), Counter(text for text, _ in by_class)
    index_of = {text: index for text, index in by_class if class_counts[text] == 1}
    return [(position, index_of[text]) for text, position in by_label if label_counts[text] == 1 and text in index_of]


def _pairs_by_position(
    labels: Sequence[str],
    classes: Sequence[str],
    matched: dict[int, int],
    remaining: Sequence[int],
    unfilled: Sequence[int],
    used: Sequence[int],
) -> dict[int, int] | None:
    """Match the remaining labels by position or as the only ones left; None where that would be a guess."""
    if len(labels) == len(classes) and all(label == index for label, index in matched.items()):
        return {label: label for label in remaining}
    if len(used) == len(unfilled) == 1 and matched:
        return {used[0]: unfilled[0]}
    return None


def _contradiction(
    labels: Sequence[str],
    classes: Sequence[str],
    counts: Sequence[int],
    source: str,
    used: Sequence[int],
    unfilled: Sequence[int],
    has_match: bool,
) -> str:
    if not has_match:
        return (
            f"{source}: has {len(labels)} categories, but the network names {len(classes)} classes, and no name is in both; "
            "give the annotations and names of one data set"
        )
    label = used[0]
    candidates = [classes[index] for index in unfilled]
    nearest = difflib.get_close_matches(labels[label], candidates, 1, 0.5) or candidates[:1]
    more = f" (and {len(used) - 1} more)" if len(used) > 1 else ""
    return (
        f"{source}: class {shown(labels[label])}{more}, with {sum(counts[index] for index in used)} objects, is none of the "
        f"network's {len(classes)}, of which {shown(nearest[0])} is the nearest that the file lacks; names are in another "
        "order, so that no position tells: spell them alike in model.names or in the file"
    )
