"""The build backend of the Python package: maturin, but on Linux only, because the program builds nowhere else."""

import sys

if sys.platform != "linux":
    sys.exit(
        "farwire runs on Linux only, because it uses network namespaces of Linux: install it in a Linux virtual machine"
    )

from maturin import *  # noqa: E402,F401,F403
