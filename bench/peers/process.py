# SPDX-License-Identifier: Apache-2.0
"""A peer as a process of its own, bound to the same cores and given the same number of threads as all."""
import json
import os
import subprocess
import threading

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
        self.process, self.trouble, self.version = None, None, ""
        if not os.path.exists(command[-1]):
            self.trouble = "not built"
            return
        environment = dict(os.environ)
        environment.update((key, text.format(threads=options.threads)) for key, text in ENVIRONMENT.items())
        try:
            self.process = subprocess.Popen(
                command + [str(options.threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                stderr=None if options.verbose else subprocess.DEVNULL, env=environment,
                preexec_fn=lambda: os.sched_setaffinity(0, options.cores),
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
        watchdog = threading.Timer(self.patience, self.process.kill)
        watchdog.start()
        try:
            for line in self.process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        finally:
            watchdog.cancel()
        self.trouble = f"ended by itself, or after {self.patience:.0f} s without an answer"
        return {"error": self.trouble}

    def ask(self, *words):
        if self.trouble:
            return {"error": self.trouble}
        try:
            self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
            self.process.stdin.flush()
        except OSError:
            self.trouble = "ended by itself"
            return {"error": self.trouble}
        return self.answer()

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
