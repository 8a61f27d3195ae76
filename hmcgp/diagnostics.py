"""Convergence diagnostics of a run: a table, a list of findings, and warnings."""

from __future__ import annotations

from hmcgp.reporting.diagnostics import COLUMNS, Finding, bfmi, check, check_averaged, select, summary, warn

__all__ = ["COLUMNS", "Finding", "bfmi", "check", "check_averaged", "select", "summary", "warn"]
