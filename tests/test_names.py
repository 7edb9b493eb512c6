# SPDX-License-Identifier: MIT
"""Files of tests are found by what they test."""

from __future__ import annotations

from pathlib import Path

# Tests of what no single module does, by room.
TOPICS = {
    "backends": {"onnx_engines", "registry", "run_in_engine", "verify"},
    "cli": {
        "action",
        "agents",
        "cache",
        "conditions",
        "environment",
        "growth",
        "identities",
        "imports",
        "integer",
        "max_loss",
        "narrow",
        "quantization",
    }
    | {
        "damaged_documents",
        "docs_replayed",
        "reproducers",
        "sources",
        "tables",
        "target_files",
        "toolchains",
        "tuned_weights",
        "unlabelled",
    },
    "detection": {"conditions", "math"},
    "engine": {"family"},
    "evaluation": {"coverage"},
    "export": {"beyond_basic", "targets"},
    "formats": {"parsers_with_hypothesis", "wild"},
    "importing": {"hostile", "onnx", "quantised", "round_trip", "tensorflow", "tflite"},
    "kernels": {"elementwise", "levels", "oracle", "partial_sums"},
    "quantization": {"groups"},
    "sweep": {"classifier", "costs", "integer", "narrow", "sweep", "tuned_weights"},
}

# Rooms of mpnet/ without tests of their own, and why.
TESTED_ELSEWHERE: dict[str, str] = {}


def test_every_room_has_tests(repository: Path) -> None:
    """A room of mpnet/ has a folder of that name in tests/ with tests in it, or says where it is tested."""
    rooms = {path.parent.name for path in (repository / "mpnet").glob("*/__init__.py")}
    untested = {room for room in rooms if not any((repository / "tests" / room).rglob("test_*.py"))}
    assert untested == TESTED_ELSEWHERE.keys()


def test_tests_of_a_module_have_its_name(repository: Path) -> None:
    """A file of tests in a room's folder is named test_<module>, test_<module>_<part of it>, or after one of TOPICS."""
    unnamed = []
    for folder in sorted(path for path in (repository / "mpnet").iterdir() if (repository / "tests" / path.name).is_dir()):
        modules = {path.stem for path in folder.rglob("*") if path.suffix == ".py" or path.is_dir()} | TOPICS.get(
            folder.name, set()
        )
        if folder.name == "kernels":
            modules |= {path.stem for path in (repository / "csrc").iterdir()}
        for path in sorted((repository / "tests" / folder.name).glob("test_*.py")):
            subject = path.stem.removeprefix("test_")
            if not any(subject == module or subject.startswith(f"{module}_") for module in modules):
                unnamed.append(f"{path}: no module or topic of this name")
    assert unnamed == []
