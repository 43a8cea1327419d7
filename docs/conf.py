"""How the manual is built: `make docs`. Its reference is made from the code by `reference.py`."""

from __future__ import annotations

import sys
from importlib.metadata import version as find_version
from pathlib import Path

from pygments.lexers import BashLexer
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

project = "Dead Heat"
author = "The authors of Dead Heat"
release = version = find_version("deadheat")
extensions = ["myst_parser", "reference"]
exclude_patterns = ["pictures"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Dead Heat"
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}


def setup(app: Sphinx) -> None:
    """Console blocks hold commands without a prompt, so that they can be copied."""
    app.add_lexer("console", BashLexer)
