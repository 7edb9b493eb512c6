# SPDX-License-Identifier: MIT
"""One SQLite file per sweep that loses nothing: finished trials, who works on what, and how the sweep went.

trial_store: the store. trial: what it keeps. store_file: its file, notes, contexts and claims. schema: its tables and errors.
documents: what its values may be. ruled_out: configurations that need no trial. failed: those without figures.
claims, owners: which process works on what. records: the sweeps of a store. reading: opens one wherever it lies.
latest: which one a folder means. salvage: what is whole of a damaged one.
"""

from mpnet.sweep.store.failed import FailedTrial
from mpnet.sweep.store.trial import Subject, Trial, Work
from mpnet.sweep.store.trial_store import TrialStore

__all__ = ["FailedTrial", "Subject", "Trial", "TrialStore", "Work"]
