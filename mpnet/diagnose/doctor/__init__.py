# SPDX-License-Identifier: MIT
"""What is wrong with a network, its images and its labels before anything is searched: `mpnet doctor`.

`examine.py` tells the story. Each other file has checks; each check declares the one kind of finding that it makes.
"""

from mpnet.diagnose.doctor.examine import CHECKS, examine
from mpnet.diagnose.doctor.finding import Diagnosis, Finding
from mpnet.diagnose.doctor.patient import DoctorFiles, Patient, open_patient

__all__ = ["CHECKS", "Diagnosis", "DoctorFiles", "Finding", "Patient", "examine", "open_patient"]
