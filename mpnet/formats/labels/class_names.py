# SPDX-License-Identifier: MIT
"""The names of a network's classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mpnet.errors import ConfigError
from mpnet.model.network import NetworkSpec

if TYPE_CHECKING:
    from mpnet.config.experiment import DataSection


def class_names(spec: NetworkSpec, path: str | Path | None, data: DataSection | None = None) -> tuple[str, ...]:
    """Return one name per class of the network: of the file, else as the data set's own file has them, else made up.

    Raises: ConfigError when there is another number of names.
    """
    classes = spec.classes
    if path is None and data is not None:
        from mpnet.formats.labels.dataset import names_in

        stated_names = names_in(data)
        if stated_names is not None and classes and len(stated_names) != classes:
            raise ConfigError(
                f"{data.labels or data.annotations}: holds {len(stated_names)} names, but {spec.source} has {classes} classes; "
                "name its own with model.names"
            )
        if stated_names is not None:
            return stated_names
    if path is None:
        return tuple(f"class-{index}" for index in range(classes))
    from mpnet.formats.labels.yolo import read_names

    names = read_names(path)
    if classes and len(names) != classes:
        raise ConfigError(f"{path}: holds {len(names)} names, but {spec.source} has {classes} classes; use its names")
    return names
