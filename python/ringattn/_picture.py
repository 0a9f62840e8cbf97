# SPDX-License-Identifier: Apache-2.0
"""A picture of a pattern as SVG, which notebooks and browsers show."""
import pathlib

from ._errors import ArgumentError
from ._functions import mask

_MOST = 128  # cells on a side
_SHADES = ("#4477aa", "#66ccee", "#228833")  # seen once, twice, more often


class Picture:
    """An SVG. Notebooks show it; `save` writes it to a file."""

    def __init__(self, svg: str):
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path) -> None:
        pathlib.Path(path).write_text(self.svg, encoding="utf-8")


def plot(pattern, queries=64, keys=None, *, head=0, order=None) -> Picture:
    """Which keys (left to right) each query (top to bottom) sees, of one head."""
    keys = queries if keys is None else keys
    if max(queries, keys) > _MOST:
        raise ArgumentError(f"plot() draws at most {_MOST} queries and keys; {queries} x {keys} were "
                         "asked for")
    seen = mask(pattern, queries, keys, heads=head + 1, order=order)[head]
    cells = []
    for i in range(queries):
        for j in range(keys):
            if seen[i, j]:
                shade = _SHADES[min(seen[i, j], len(_SHADES)) - 1]
                cells.append(f'<rect x="{j}" y="{i}" width="1" height="1" fill="{shade}"/>')
    return Picture(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 -1 {keys + 2} '
                   f'{queries + 2}" width="480" role="img" aria-label="keys seen by queries">'
                   f'<rect x="0" y="0" width="{keys}" height="{queries}" fill="#eeeeee" '
                   f'stroke="#888888" stroke-width="0.2"/>{"".join(cells)}</svg>')
