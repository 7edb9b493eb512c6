# SPDX-License-Identifier: MIT
"""A graph of operations while rules rewrite it."""

from __future__ import annotations

from typing import Callable

from mpnet.importing.layer_graph import LayerGraph, LayerOperation

_MAX_PASSES = 100


class OperationRewriter:
    """A graph with the maker and the readers of each tensor, kept up to date while rules change it.

    Rules that looked at the whole graph after each change would take quadratic time. Operations that nothing reads any more
    leave the graph.
    """

    def __init__(self, layers: LayerGraph, head_tensors: frozenset[str], rounded_tensors: frozenset[str]) -> None:
        self.layers, self.head_tensors, self.rounded_tensors = layers, head_tensors, rounded_tensors
        self.makers = layers.makers()
        self.readers: dict[str, dict[int, LayerOperation]] = {}
        # With the operations themselves: a new one could be given the id of one that is gone.
        self._removed_operations: dict[int, LayerOperation] = {}
        self._inserted_before: dict[int, list[LayerOperation]] = {}
        self._new_operations: list[LayerOperation] = []
        for operation in layers.operations:
            self._note_reads(operation)
        for operation in reversed(layers.operations):
            self._drop_unread(operation.output)
        self._compact()

    def apply(self, rule: Callable[[OperationRewriter, LayerOperation], bool]) -> None:
        """Use a rule wherever it changes something. rule: returns whether it changed the graph around an operation."""
        for _ in range(_MAX_PASSES):
            has_changed = False
            for start in self.layers.operations:
                pending = [start]
                while pending:
                    operation = pending.pop()
                    if id(operation) not in self._removed_operations and rule(self, operation):
                        has_changed = True
                        pending += [operation, *self._new_operations]
                        self._new_operations = []
            self._compact()
            if not has_changed:
                return

    def _compact(self) -> None:
        operations: list[LayerOperation] = []

        def append_with_inserted(operation: LayerOperation) -> None:
            waiting = [(operation, False)]
            while waiting:
                current, is_ready = waiting.pop()
                if is_ready:
                    if id(current) not in self._removed_operations:
                        operations.append(current)
                    continue
                waiting.append((current, True))
                waiting += [(inserted, False) for inserted in reversed(self._inserted_before.get(id(current), []))]

        for operation in self.layers.operations:
            append_with_inserted(operation)
        self.layers.operations = operations
        self._inserted_before = {}

    def _note_reads(self, operation: LayerOperation) -> None:
        for name in operation.inputs:
            self.readers.setdefault(name, {})[id(operation)] = operation

    def _drop_unread(self, tensor: str) -> None:
        waiting = [tensor]
        while waiting:
            name = waiting.pop()
            maker = self.makers.get(name)
            if maker is None or self.readers.get(name) or name in self.head_tensors:
                continue
            self._removed_operations[id(maker)] = maker
            del self.makers[name]
            for input_name in dict.fromkeys(maker.inputs):
                self.readers[input_name].pop(id(maker), None)
                waiting.append(input_name)

    def set_inputs(self, operation: LayerOperation, inputs: list[str]) -> None:
        """Let an operation read other tensors."""
        previous_inputs, operation.inputs = operation.inputs, inputs
        self._note_reads(operation)
        for name in dict.fromkeys(previous_inputs):
            if name not in inputs:
                self.readers[name].pop(id(operation), None)
                self._drop_unread(name)

    def replace(self, old_name: str, new_name: str) -> None:
        """Let readers of one tensor read another."""
        for operation in list(self.readers.get(old_name, {}).values()):
            self.set_inputs(operation, [new_name if name == old_name else name for name in operation.inputs])

    def insert(self, operation: LayerOperation, reader: LayerOperation) -> None:
        """Put a new operation before the one that is going to read it."""
        self._inserted_before.setdefault(id(reader), []).append(operation)
        self._new_operations.append(operation)
        self.layers.shapes[operation.output] = operation.shape
        self.makers[operation.output] = operation
        self._note_reads(operation)

    def absorb(self, operation: LayerOperation, previous: LayerOperation) -> None:
        """Let an operation take the place of the one before it as well."""
        operation.nodes = [*previous.nodes, *operation.nodes]
        self.set_inputs(operation, previous.inputs)

    def is_read_once(self, name: str) -> bool:
        """Return whether one operation reads a tensor, and nothing else does."""
        return len(self.readers.get(name, ())) == 1 and name not in self.head_tensors

    def maker_of_kind(self, name: str, *kinds: str) -> LayerOperation | None:
        """Return the operation that makes a tensor, if it is of these kinds."""
        operation = self.makers.get(name)
        return operation if operation is not None and operation.kind in kinds else None
