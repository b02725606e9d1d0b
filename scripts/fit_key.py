"""The key under which results of a script are kept, so that another program or another script does not use them again."""

import hashlib
from pathlib import Path


def key(script, program):
    """Returns a short hash of a script and of the program that it measures."""
    found = hashlib.sha256()
    for file in (script, program):
        found.update(hashlib.sha256(Path(file).read_bytes()).digest())
    return found.hexdigest()[:12]
