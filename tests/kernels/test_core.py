# SPDX-License-Identifier: MIT
"""What type checkers are told of the extension is what its headers declare."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mpnet.kernels._core import ffi, lib


@pytest.fixture
def stub_classes(repository: Path) -> dict[str, ast.ClassDef]:
    tree = ast.parse((repository / "mpnet/kernels/_core.pyi").read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def get_attributes(node: ast.ClassDef) -> list[str]:
    return [statement.target.id for statement in node.body if isinstance(statement, ast.AnnAssign)]  # type: ignore[union-attr]


def test_numbers_and_functions_exist(stub_classes: dict[str, ast.ClassDef]) -> None:
    numbers = get_attributes(stub_classes["_Lib"])
    assert {name: type(getattr(lib, name)) for name in numbers} == dict.fromkeys(numbers, int)
    functions = [node for node in stub_classes["_Lib"].body if isinstance(node, ast.FunctionDef) and node.name != "__getattr__"]
    argument_counts = {node.name: len(node.args.posonlyargs + node.args.args) - 1 for node in functions}
    assert argument_counts == {name: len(ffi.typeof(getattr(lib, name)).args) for name in argument_counts}


@pytest.mark.parametrize(("kind", "name"), [("mp_conv_args", "ConvArgs"), ("mp_geometry", "Geometry")])
def test_structs_have_these_fields(kind: str, name: str, stub_classes: dict[str, ast.ClassDef]) -> None:
    attributes = get_attributes(stub_classes[name])
    assert attributes
    assert set(attributes) <= set(dict(ffi.typeof(kind).fields))
