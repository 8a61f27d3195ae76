"""Example data sets of hmcgp under the GPL: `name.csv`, its description `name.md`, and SOURCES.md with the licences.

`hmcgp.datasets` reads them.  This package contains no code.
"""
