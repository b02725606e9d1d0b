"""Runs farwire for the test process, and ends it when that process ends.

The arguments are a folder of the test process and farwire's command line. Standard input is a pipe from the test process. When the pipe
ends, as it does however that process ends, farwire gets SIGTERM, and restores everything. The exit code is that of farwire.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from typing import List

#: What the test process writes before it closes the pipe, if it removes its folder itself.
GOODBYE = b"end"


def main(folder: str, command: List[str]) -> int:
    said: List[bytes] = []
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def await_end() -> None:
        # The test process writes once at most.
        said.append(os.read(sys.stdin.fileno(), len(GOODBYE)))
        process.terminate()

    threading.Thread(target=await_end, daemon=True).start()
    code = process.wait()
    if said != [GOODBYE]:
        # The test process did not say goodbye, so nobody else removes its folder.
        shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    # An interrupt of the terminal is for the test process, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
