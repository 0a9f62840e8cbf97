# SPDX-License-Identifier: Apache-2.0
"""docs/PYTORCH.md runs as it is written."""
import contextlib
import io
import pathlib
import re

TOUR = pathlib.Path(__file__).resolve().parents[2] / "docs" / "PYTORCH.md"


def test_the_tour():
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", TOUR.read_text(), re.S)
    assert len(blocks) > 2
    names = {}
    for code, want in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(TOUR), "exec"), names)
        assert printed.getvalue() == want, code
