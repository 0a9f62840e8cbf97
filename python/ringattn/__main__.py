# SPDX-License-Identifier: Apache-2.0
"""`python -m ringattn`: the command of this package."""
import os
import sys

from ._library import HERE


def main() -> None:
    command = os.environ.get("RINGATTN_COMMAND") or str(HERE / "bin" / "ringattn")
    try:
        os.execv(command, [command, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"ringattn: {command} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
