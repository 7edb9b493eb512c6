# SPDX-License-Identifier: MIT
"""The errors that mpnet raises on purpose.

Every message names the place, the value and the remedy, in one line:
``cfg/tiny.cfg:41: unknown key 'int_8'; did you mean 'int8'?``
The command line prints it and leaves with exit code 2.
"""

from __future__ import annotations


class MpnetError(Exception):
    """Base of all errors that a user can cause and mend."""


class FormatError(MpnetError, ValueError):
    """A file's content is not what its format asks for."""


class DataError(MpnetError, ValueError):
    """Images, labels or arrays that cannot be used."""


class ConfigError(MpnetError, ValueError):
    """An experiment, an option or an argument that makes no sense."""


class PrecisionError(MpnetError, ValueError):
    """A precision that a layer cannot have, or a conversion that was promised away."""


class EngineError(MpnetError):
    """A network that cannot be run, or a tensor that is not finite."""


class KernelError(MpnetError):
    """A kernel refused its arguments, or the CPU lacks what was asked for."""


class StoreError(MpnetError):
    """Results that cannot be written, read or trusted."""


class DownloadError(MpnetError):
    """A file that no source delivers whole."""


class NonFiniteError(EngineError, KernelError):
    """A kernel met or made NaN or infinity; the engine adds which layer."""
