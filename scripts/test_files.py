"""Files that a test of a script reads, in a directory that is removed afterwards."""

import contextlib
import tempfile
from pathlib import Path


@contextlib.contextmanager
def directory_of(files):
    """A directory with some files: {path below it: text}."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            file = Path(directory, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        yield Path(directory)
