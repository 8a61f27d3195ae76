"""Build backend: `setuptools.build_meta`, with the template of the source distribution in this folder.

setuptools reads MANIFEST.in from the top level of the repository, and has no setting for another path.
"""

from __future__ import annotations

from setuptools.build_meta import *  # noqa: F403
from setuptools.command.egg_info import manifest_maker

manifest_maker.template = "scripts/MANIFEST.in"  # relative to the root of the repository, where build backends run
