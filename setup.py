# SPDX-License-Identifier: MIT
"""Builds the C core. Everything else about the package is in pyproject.toml."""

import os
import sys

from setuptools import setup

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "csrc"))
os.chdir(HERE)

from build_ext import BuildExt  # noqa: E402  (csrc/build_ext.py: one set of flags per ISA level)

setup(cffi_modules=["csrc/build_ffi.py:ffi"], cmdclass={"build_ext": BuildExt})
