"""Runs the program: `python -m farwire ARGUMENT...`."""

from __future__ import annotations

import os
import sys

from ._errors import FarwireError
from ._find import find_farwire_bin


def main() -> None:
    """Replaces this process by the program."""
    try:
        program = find_farwire_bin()
    except FarwireError as error:
        sys.exit(f"farwire: {error}")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
