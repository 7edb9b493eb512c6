"""TensorFlow itself, where it is installed."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest


@pytest.fixture
def tensorflow_here() -> Any:
    """The module, which answers with its own kernels; the test is skipped aloud without it."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("SKIPPED WITHOUT TENSORFLOW: pip install 'mpnet[tf]' compares with it live; golden vectors did run")
    # oneDNN's kernels, which TensorFlow takes on CPUs with VNNI, answer otherwise; it is read when TensorFlow is imported.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    import tensorflow

    return tensorflow
