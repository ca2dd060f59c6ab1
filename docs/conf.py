"""Sphinx configuration: `make docs` builds the pages into build/docs."""

import tomllib
from pathlib import Path

from demur.report import explorer

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = PROJECT["name"]
author = "the demur authors"
project_copyright = author
version = release = PROJECT["version"]

# The explorer is written anew with the pages, so that it is always that of this version.
explorer.write_explorer(Path(__file__).parent / "_static" / "explorer.html")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]

source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings give types together with shapes
napoleon_google_docstring = False
napoleon_use_rtype = False

# Shipped with the pages (see the Makefile), so that they read the same without a network.
mathjax_path = "mathjax/tex-mml-chtml.js"

html_theme = "furo"
html_title = f"demur {version}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_theme_options = {"navigation_with_keys": True}
