# SPDX-License-Identifier: MIT
"""The key of a precision plan in words: `int8, but fp16 in heads`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from mpnet.model.network import NetworkSpec
from mpnet.model.plan_key import split_key
from mpnet.model.precision import BY_CODE
from mpnet.model.selectors import layer_selectors

NAMED = 6
"""Most groups and layers of a precision that are listed by name."""
LONGEST = 100
"""Characters beyond which layers are counted."""
IN_TABLES = 36
"""The same in a column of a table."""
_ALONE = ("first", "last", "heads")
"""Groups that say more than a layer's name where they are one layer."""


@dataclass(frozen=True)
class PlanWords:
    """The words for the keys of one network.

    names: of the layers with weights, in the order of keys. groups: their positions by the group that selects them.
    """

    names: tuple[str, ...]
    groups: Mapping[str, frozenset[int]]

    @classmethod
    def of(cls, layers: Iterable[tuple[str, Sequence[str]]]) -> PlanWords:
        """Make them from the name of each layer with weights and what selects it, its own name and number included."""
        names, groups = [], dict[str, set[int]]()
        for position, (name, selectors) in enumerate(layers):
            names.append(name)
            for group in selectors:
                if group != name and not group.isdecimal():
                    groups.setdefault(group, set()).add(position)
        return cls(tuple(names), {group: frozenset(positions) for group, positions in groups.items()})

    @classmethod
    def of_network(cls, network: NetworkSpec) -> PlanWords:
        """Make them of a network that is at hand."""
        return cls.of((layer.name, layer_selectors(network)[layer.index]) for layer in network.convolutions)

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]]) -> PlanWords:
        """Make them from the `precision.layers` of a result, or the `layers` of a sweep."""
        return cls.of(
            (str(row.get("name") or row.get("type", "")), [str(one) for one in row.get("selectors", ())])
            for row in rows
            if row.get("parameters")
        )

    def __call__(self, key: str, longest: int = LONGEST) -> str:
        """Describe a plan: `int8, but fp16 in heads`; a mixture without pattern: `int8 in 31 layers, fp16 in 29, fp32 in 24`.

        What layers without weights have is not said.
        """
        codes = split_key(key)[0]
        if not codes:
            return "no layer with weights"
        (most, count), *others = Counter(codes).most_common()
        if not others:
            return f"{BY_CODE[most].name} everywhere"
        lists = [self._listed({i for i, code in enumerate(codes) if code == other}) for other, _ in others]
        exceptions = " and ".join(
            f"{BY_CODE[code].name} in {', '.join(parts) if len(parts) <= NAMED else f'{number} layers'}"
            for (code, number), parts in zip(others, lists, strict=True)
        )
        text = f"{BY_CODE[most].name}, but {exceptions}"
        if len(text) <= longest and len(self.names) == len(codes):
            return text
        rest = "".join(f", {BY_CODE[code].name} in {number}" for code, number in others)
        return f"{BY_CODE[most].name} in {count} layers{rest}"

    def _listed(self, positions: set[int]) -> list[str]:
        """List groups, the largest taken first, and the names of the layers in none of them, in the order of layers."""
        remaining, found_names = set(positions), list[tuple[int, str]]()
        while remaining:
            fitting = [(len(of & remaining), name) for name, of in self.groups.items() if of <= positions and of & remaining]
            count, name = max(fitting, key=lambda pair: pair[0], default=(0, ""))
            if count < 2 and name not in _ALONE:
                break
            found_names.append((min(self.groups[name]), name))
            remaining -= self.groups[name]
        found_names += [(position, self.names[position]) for position in remaining if position < len(self.names)]
        return [name for _, name in sorted(found_names)]
