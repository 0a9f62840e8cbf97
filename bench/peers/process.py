# SPDX-License-Identifier: Apache-2.0
"""A peer as a process of its own, given the same number of threads as all."""
import json
import os
import select
import subprocess
import time

# What different libraries call the number of threads; torch uses huge pages only if asked to; sources
# are not cluttered with caches.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "{threads}",
    "MKL_NUM_THREADS": "{threads}",
    "OPENBLAS_NUM_THREADS": "{threads}",
    "THP_MEM_ALLOC_ENABLE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Peer:
    """A process that answers commands; peer.h has the words. `trouble` is a sentence once it is gone."""

    def __init__(self, name, command, options, advice=""):
        self.name, self.advice, self.patience = name, advice, options.patience
        self.process, self.trouble, self.version, self.unread = None, None, "", b""
        if not os.path.exists(command[-1]):
            self.trouble = "not built"
            return
        environment = dict(os.environ)
        environment.update((key, text.format(threads=options.threads)) for key, text in ENVIRONMENT.items())
        try:
            self.process = subprocess.Popen(
                command + [str(options.threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                stderr=None if options.verbose else subprocess.DEVNULL, env=environment,
            )
        except OSError as error:
            self.trouble = str(error)
            return
        answer = self.answer()
        self.version = answer.get("version", "")
        if "absent" in answer:
            self.trouble = answer["absent"]

    def answer(self):
        """The next JSON line; lines that are none come from libraries that talk."""
        deadline = time.monotonic() + self.patience
        while (line := self.line(deadline)) and time.monotonic() < deadline:
            if line.startswith(b"{"):
                return json.loads(line)
        self.process.kill()
        self.trouble = f"ended by itself, or after {self.patience:.0f} s without an answer"
        return {"error": self.trouble}

    def line(self, deadline):
        """The next line with its end, or nothing. No thread waits here: a signal that is to end the
        comparison could arrive in that thread's bookkeeping, where Python drops the exception."""
        while b"\n" not in self.unread:
            left = deadline - time.monotonic()
            if left <= 0.0 or not select.select([self.process.stdout], [], [], left)[0]:
                return b""
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                return b""
            self.unread += data
        line, end, self.unread = self.unread.partition(b"\n")
        return line + end

    def ask(self, *words):
        if self.trouble:
            return {"error": self.trouble}
        try:
            self.process.stdin.write((" ".join(str(word) for word in words) + "\n").encode())
        except OSError:
            self.trouble = "ended by itself"
            return {"error": self.trouble}
        return self.answer()

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
