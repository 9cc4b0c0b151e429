# SPDX-License-Identifier: Apache-2.0
"""What the plots of docs/ are made of."""
from xml.sax.saxutils import escape

# In the middle between black and white: as legible on a light page as on a dark one.
TEXT = "#797979"


def text(x, y, content, size=14, anchor="start", weight="normal", colour=None):
    fill = "" if colour is None else f' fill="{colour}"'
    return (f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}"{fill}>'
            f"{escape(content)}</text>")


def picture(width, height, title, parts):
    """A whole file."""
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'role="img" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" fill="{TEXT}">')
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>"]) + "\n"
