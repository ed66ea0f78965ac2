"""What the extensions have in common that are compiled where they are installed: axccl.torch and axccl.jax."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import sys
import sysconfig
from typing import Iterator


# Sources that are part of every extension.
_SHARED = pathlib.Path(__file__).resolve().parent / "csrc"


def sources(own: pathlib.Path) -> list[str]:
    """What an extension is compiled from, whose own sources are in that folder."""
    return [str(path) for folder in (own, _SHARED) for path in sorted(folder.glob("*.cc"))]


def include(asking: str) -> pathlib.Path:
    """The folder of the library's headers. `asking` names the package in errors."""
    import axccl

    package = pathlib.Path(axccl.__file__).parent
    for folder in (package / "include", pathlib.Path(os.environ.get("AXCCL_INCLUDE", "/nonexistent"))):
        if (folder / "axccl" / "axccl.h").exists():
            return folder
    raise ImportError(f"{asking}: no headers in {package / 'include'}; install the wheel, or set AXCCL_INCLUDE to the "
                      "folder that has axccl/axccl.h")


def library(asking: str) -> pathlib.Path:
    """The library that axccl itself has loaded: a second copy would be a second world of ranks."""
    import axccl  # noqa: F401

    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if pathlib.Path(path).name.startswith("libaxccl.so"):
                return pathlib.Path(path)
    raise ImportError(f"{asking}: libaxccl.so is not loaded, although axccl is; reinstall axccl")


def cache(framework: str) -> pathlib.Path:
    """Where the extensions for a framework are kept."""
    base = os.environ.get("AXCCL_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "axccl")
    return pathlib.Path(base) / framework


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Of processes that start together, one at a time. A process that ends, however it ends, lets the next one go on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f"{path.name}.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def key(asking: str, source: pathlib.Path, framework: str) -> str:
    """What an extension depends on: sources, headers, the framework's version and place, Python and the library."""
    digest = hashlib.sha256()
    for path in sorted(source.iterdir()) + sorted(_SHARED.iterdir()) + sorted(include(asking).glob("**/*.h")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    digest.update(f"{framework} {sys.version} {sysconfig.get_platform()}".encode())
    return digest.hexdigest()[:16]
