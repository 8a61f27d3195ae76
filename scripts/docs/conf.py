"""Settings of the documentation, which `scripts/build_docs` builds."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from sklearn.exceptions import ConvergenceWarning

import hmcgp
from scripts.docs.reference import write_reference
from scripts.docs.repository_pages import DOCS, FOLDER, with_included, write_pages

project, author, release = "hmcgp", "the hmcgp authors", hmcgp.__version__
copyright = author
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["gallery"]  # the sources of the gallery; what is built of them is in build/
default_role = "literal"
nitpicky = False

# -- pages -------------------------------------------------------------------------------------------------------------

write_pages()

myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath", "colon_fence"]
suppress_warnings = [
    "sphinx_gallery.space_in_filename",  # of a folder above the repository; the examples' own names have none
    "config.cache",  # the settings of the gallery hold functions
    "ref.python",  # types in docstrings are words ("ndarray of shape …"), some of which several classes have
]
copybutton_prompt_text = ">>> "

# -- reference: everything public, one page per module -----------------------------------------------------------------

write_reference(DOCS / "build" / "api")
autodoc_typehints = "none"  # the docstrings have the types
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "shape"}  # or "ndarray of shape (n,)" would link to it
autoclass_content = "class"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

# -- gallery: scripts that run when the site is built ------------------------------------------------------------------

warnings.filterwarnings("ignore", category=ConvergenceWarning)  # chains are short there, as the page says
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "build/gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1,
    "abort_on_example_error": True,
    "image_scrapers": ("matplotlib",),
    "remove_config_comments": True,
    "write_computation_times": False,
}

# -- looks -------------------------------------------------------------------------------------------------------------

html_theme = "furo"
html_title = "hmcgp"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False


def escape_formulas(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Keep |x| and y_i of docstrings as they are: reStructuredText reads them as substitutions and references."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...", "..")):
            parts = line.split("`")
            parts[::2] = [re.sub(r"\||(?<=\w)_(?=\W|$)", r"\\\g<0>", part) for part in parts[::2]]
            lines[i] = "`".join(parts)


def setup(app: Any) -> None:
    """Let links between files of the repository lead to pages of the site."""

    def rewrite(_app: Any, name: str, source: list[str]) -> None:
        path = DOCS / f"{name}.md"
        if path.exists() and path.parent != FOLDER:
            source[0] = with_included(source[0], path, path.parent)

    app.connect("source-read", rewrite)
    app.connect("autodoc-process-docstring", escape_formulas, priority=600)  # after napoleon
