"""RDMA over any IP network, in user space: runs programs under `weft run`.

`path` finds the command that this package installed; `run` is `subprocess.run` with it in front.
"""

import os
import pathlib
import shutil
import subprocess
from importlib import metadata

__all__ = ["path", "run", "command"]


def path():
    """The absolute path of `weft`: this package's own, or that in PATH.

    Raises FileNotFoundError if there is none.
    """
    for file in _own_files():
        if file.parts[-2:] == ("bin", "weft"):
            place = pathlib.Path(os.path.abspath(file.locate()))
            if place.is_file():
                return str(place)
    found = shutil.which("weft")
    if found is None:
        raise FileNotFoundError("weft is neither in this package nor in PATH")
    return os.path.abspath(found)


def _own_files():
    try:
        return metadata.files("weft-rdma") or []
    except metadata.PackageNotFoundError:
        return []


def command(program, *, stats=False, require_traffic=False):
    """The command line that runs `program`, a list of words, with RDMA devices in it.

    With `require_traffic` it fails with status 123 if no RDMA operation ran; with `stats` it says
    on stderr what ran.
    """
    options = ["--stats"] * stats + ["--require-traffic"] * require_traffic
    return [path(), "run", *options, "--", *map(os.fspath, program)]


def run(program, *, stats=False, require_traffic=False, **options):
    """`subprocess.run` of `program` under `weft run`, with the same options and result."""
    line = command(program, stats=stats, require_traffic=require_traffic)
    return subprocess.run(line, **options)
