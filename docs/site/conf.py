"""How Sphinx makes the site of what scripts/site_pages.py has put together; scripts/site runs both."""

from importlib.metadata import version as version_of
from itertools import count

from docutils import nodes
from docutils.parsers.rst import Directive
from mermaidx import render
from sphinx.application import Sphinx

project = "Fleetlight"
version = release = version_of("fleetlight")
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"Fleetlight {release}"
# Those of GitHub, where the same documents are read.
myst_heading_anchors = 6
myst_fence_as_directive = ["mermaid"]
# Sections of contracts and changelogs begin where those of their sources do.
suppress_warnings = ["myst.header"]
exclude_patterns = ["docs/site"]

_numbers = count()


class Mermaid(Directive):
    """A diagram, drawn while the site is built: a reader needs neither a script nor a network."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        # Styles and arrows are found by the id of their drawing, and a page may have several.
        drawn = render("\n".join(self.content)).svg().replace("my-svg", f"diagram-{next(_numbers)}")
        return [nodes.raw("", f"<figure>{drawn}</figure>", format="html")]


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_directive("mermaid", Mermaid)
