# SPDX-License-Identifier: MIT
"""Deployment of one configuration: files for another program, and what that program makes of them."""

from mpnet.deploy.export_source import ExportReport, export_source

__all__ = ["ExportReport", "export_source"]
