# SPDX-License-Identifier: Apache-2.0
"""docs/PYTORCH.md runs as it is written."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import tour  # noqa: E402


def test_the_tour():
    tour.run("PYTORCH.md", least=3)
