# SPDX-License-Identifier: Apache-2.0
"""The tour of docs/PYTHON.md runs as it is written, and what it says it prints is printed."""
import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys

TOUR = pathlib.Path(__file__).resolve().parents[2] / "docs" / "PYTHON.md"


def test_the_tour(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", TOUR.read_text(), re.S)
    assert len(blocks) > 5
    names = {}
    for code, want in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(TOUR), "exec"), names)
        assert printed.getvalue() == want, code


def test_the_command():
    found = subprocess.run([sys.executable, "-m", "ringattn", "--version"], capture_output=True,
                           text=True, env=os.environ)
    assert found.returncode == 0 and found.stdout.startswith("ringattn ")
