# SPDX-License-Identifier: MIT
"""What an experiment asks for and is known by: experiment files, protocol, measures, identities."""
