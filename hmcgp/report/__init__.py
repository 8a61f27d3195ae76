"""A fitted estimator as one self-contained HTML page."""

from hmcgp.report.page import write_report

__all__ = ["write_report"]
