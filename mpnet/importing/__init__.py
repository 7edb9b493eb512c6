# SPDX-License-Identifier: MIT
"""Networks of other programs become a cfg: read, fold, find the heads, fuse, write sections.

`import_model` tells the story; docs/import.md says what is possible.
"""

from mpnet.importing.choices import Choices
from mpnet.importing.model import Imported, import_model

__all__ = ["Choices", "Imported", "import_model"]
