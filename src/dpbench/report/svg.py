"""A matplotlib figure -> SVG to stand in a page: its colours, its names, its text alternative."""

from __future__ import annotations

import io
import logging
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it remarks on fonts and caches
os.environ["MPLBACKEND"] = "svg"  # one that a person has set may not be there
import matplotlib as mpl  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

COLOURS = {
    "paper": "#fefdfc",
    "ink": "#010203",
    "soft": "#020304",
    "line": "#030405",
    "shade": "#040506",
    "limit": "#050607",
    "arm1": "#110001",
    "arm2": "#110002",
    "arm3": "#110003",
    "arm4": "#110004",
    "arm5": "#110005",
    "arm6": "#110006",
}
"""Stand-ins that become the variables of page.css, which know light and dark."""
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 11,
    "font.family": ["sans-serif"],
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.edgecolor": COLOURS["soft"],
    "axes.labelcolor": COLOURS["ink"],
    "text.color": COLOURS["ink"],
    "xtick.color": COLOURS["soft"],
    "ytick.color": COLOURS["soft"],
    "xtick.labelcolor": COLOURS["ink"],
    "ytick.labelcolor": COLOURS["ink"],
    "grid.color": COLOURS["line"],
    "axes.grid": True,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.6,
}
WIDTH_INCHES = 5.2
SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One figure of the page."""

    title: str
    note: str
    """What to look at, below the figure."""
    svg: str


def draw(
    name: str, *, title: str, note: str, description: str, height: float, paint: Callable[..., None]
) -> Plot:
    """Return what `paint(axes)` draws; `description` tells those who cannot see it the numbers."""
    with mpl.rc_context():
        mpl.rcdefaults()  # a person's own matplotlibrc must not change the page
        mpl.rcParams.update({**SETTINGS, "svg.hashsalt": name})
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        paint(figure.add_subplot())
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return Plot(title=title, note=note, svg=clean(file.getvalue(), name, title, description))


def clean(svg: bytes, name: str, title: str, description: str) -> str:
    """Return SVG for the inside of a page: no namespaces, names of its own, title and text."""
    root = ET.fromstring(svg)
    for metadata in root.findall(f"{SVG}metadata"):
        root.remove(metadata)
    used = {
        value.split("#")[1].rstrip(")")
        for element in root.iter()
        for value in element.attrib.values()
        if value.startswith(("#", "url(#"))
    }
    for element in root.iter():
        element.tag = element.tag.removeprefix(SVG)
        old = dict(element.attrib)
        element.attrib.clear()
        for key, value in old.items():
            if key == "id":
                if value in used:
                    element.set("id", f"{name}-{value}")
            elif value.startswith(("#", "url(#")):
                plain = "href" if key == LINK else key
                element.set(plain, value.replace("#", f"#{name}-", 1))
            else:
                element.set(key, themed(value))
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    label, text = ET.Element("title", id=f"{name}-title"), ET.Element("desc", id=f"{name}-desc")
    label.text, text.text = title, description
    root.insert(0, label)
    root.insert(1, text)
    root.attrib |= {
        "role": "img",
        "aria-labelledby": f"{name}-title",
        "aria-describedby": f"{name}-desc",
    }
    return ET.tostring(root, encoding="unicode", short_empty_elements=False)


def themed(value: str) -> str:
    """Return an attribute with the colours of the page."""
    if "font:" in value or "font-family:" in value:
        value = value.replace("'sans-serif'", "inherit").replace("sans-serif", "inherit")
    for name, stand_in in COLOURS.items():
        value = value.replace(stand_in, f"var(--{name})")
    return value
