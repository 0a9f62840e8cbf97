# SPDX-License-Identifier: Apache-2.0
"""The tour of docs/PYTHON.md runs as it is written, and what it says it prints is printed."""
import os
import subprocess
import sys

import tour


def test_the_tour(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tour.run("PYTHON.md", least=6)


def test_the_command():
    found = subprocess.run([sys.executable, "-m", "ringattn", "--version"], capture_output=True,
                           text=True, env=os.environ)
    assert found.returncode == 0 and found.stdout.startswith("ringattn ")
