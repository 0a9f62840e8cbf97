# SPDX-License-Identifier: Apache-2.0
"""Documents whose Python is run as it is written."""
import contextlib
import io
import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def run(name, least):
    """Runs all blocks of a document in one namespace; each prints what the text after it shows."""
    path = DOCS / name
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", path.read_text(), re.S)
    assert len(blocks) >= least
    names = {}
    for code, want in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(path), "exec"), names)
        assert printed.getvalue() == want, code
