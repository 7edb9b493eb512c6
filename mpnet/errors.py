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


class BatchError(EngineError):
    """A batch that is too large for the memory at hand."""


class KernelError(MpnetError):
    """A kernel refused its arguments, or the CPU lacks what was asked for."""


class StoreError(MpnetError):
    """Results that cannot be written, read or trusted."""


class DownloadError(MpnetError):
    """A file that no source delivers whole."""


class NonFiniteError(EngineError, KernelError):
    """A kernel met or made NaN or infinity; the engine adds which layer."""


class FallbackWarning(UserWarning):
    """Something runs elsewhere than where it was asked to, to the same bits. The command line prints it as a remark."""


class InternalError(Exception):
    """A fault of mpnet itself: nothing that a user can mend, so it is none of `MpnetError`."""

    @classmethod
    def of(cls, error: Exception, location: str) -> InternalError:
        """Return the error of one line for an unexpected error that came up while `location` was worked on."""
        import traceback  # slow, and never needed by whoever starts
        from pathlib import Path

        folder = Path(__file__).parent
        frames = [x for x in traceback.extract_tb(error.__traceback__) if folder in Path(x.filename).parents]
        where = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        what = f"{type(error).__name__}{where}: {' '.join(str(error).split())[:200]}"
        return cls(f"{location}: this is a fault of mpnet, please report it with the file and this line: {what}")
