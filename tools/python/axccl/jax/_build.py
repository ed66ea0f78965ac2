"""Compiles the extension against the installed JAX, once for each pair of versions, and loads it."""

from __future__ import annotations

import ctypes
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import jax
import jaxlib

from axccl import _build

_SOURCE = pathlib.Path(__file__).resolve().parent / "csrc"


def load() -> ctypes.CDLL:
    """The extension for this JAX; compiled if there is none yet."""
    key = _build.key("axccl.jax", _SOURCE, f"{jaxlib.__version__} {jaxlib.__file__}")
    folder = _build.cache("jax")
    path = folder / f"axccl_jax_{key}.so"
    library = _build.library("axccl.jax")
    if not path.exists():
        with _build.locked(path):
            if not path.exists():
                _compile(path, library)
    # The loader takes the library that axccl has loaded, by its name. Its symbols must not be there for others, such as
    # those of PyTorch, which has an NCCL of its own.
    return ctypes.CDLL(str(path))


def _compiler() -> list[str]:
    chosen = os.environ.get("CXX")
    if chosen:
        return shlex.split(chosen)
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise ImportError("axccl.jax: no C++ compiler was found to compile the extension; install g++, or set CXX")


def _compile(path: pathlib.Path, library: pathlib.Path) -> None:
    print(f"axccl.jax: compiling the extension for jaxlib {jaxlib.__version__} as {path}, once", file=sys.stderr)
    unfinished = path.with_suffix(f".{os.getpid()}")
    command = [*_compiler(), "-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-isystem",
               jax.ffi.include_dir(), f"-I{_build.include('axccl.jax')}", f"-I{_SOURCE}",
               *_build.sources(_SOURCE), str(library), f"-Wl,-rpath,{library.parent}",
               "-o", str(unfinished)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as error:
        raise ImportError(f"axccl.jax: the compiler {command[0]} cannot be run: {error}; set CXX to one of "
                          "C++17") from error
    if done.returncode != 0:
        raise ImportError(f"axccl.jax: the extension cannot be compiled; it needs a compiler of C++17. "
                          f"{shlex.join(command)} said:\n{done.stdout[-4000:]}")
    os.replace(unfinished, path)
