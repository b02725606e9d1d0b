"""The place of the program."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig

from ._errors import FarwireError

#: The variable that names another program, for example one that was built in a checkout.
VARIABLE = "FARWIRE_BIN"

_LINUX_ONLY = (
    "farwire runs on Linux only, because it uses network namespaces of Linux: run your tests in a Linux virtual machine"
)


def find_farwire_bin() -> str:
    """Returns the path of the program `farwire`.

    It is the one that `FARWIRE_BIN` names, else that of this package, else the first one in the path.

    Raises FarwireError if there is none, or if this is not Linux.
    """
    if sys.platform != "linux":
        raise FarwireError(_LINUX_ONLY)
    named = os.environ.get(VARIABLE)
    if named:
        if os.access(named, os.X_OK):
            return os.path.abspath(named)
        raise FarwireError(f"{VARIABLE}={named}: there is no such program")
    for folder in _folders():
        program = os.path.join(folder, "farwire")
        if os.access(program, os.X_OK):
            return program
    found = shutil.which("farwire")
    if found is None:
        raise FarwireError(
            f"there is no program farwire in {', '.join(_folders())} or in the path: install the package farwire again, "
            f"or name the program in {VARIABLE}"
        )
    return found


def _folders() -> list[str]:
    """Returns the folders into which installers put programs, the most likely one first."""
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [
        sysconfig.get_path("scripts"),
        # `pip install --prefix DIR` and `--target DIR`.
        os.path.join(here, *[os.pardir] * 4, "bin"),
        os.path.join(here, os.pardir, "bin"),
        sysconfig.get_path("scripts", "posix_user"),
    ]
    paths = [os.path.normpath(folder) for folder in folders]
    return list(dict.fromkeys(paths))
