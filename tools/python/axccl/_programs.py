"""The package's programs and files for other languages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent


def main() -> None:
    """Runs the program of the package by whose name this one was called."""
    program = _FOLDER / "bin" / Path(sys.argv[0]).name
    try:
        os.execv(program, [program.name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{program}: {error.strerror}; install the package axccl again")


def get_include() -> str:
    """The folder of axccl/axccl.h and axccl/nccl.h, for -I.

    >>> axccl.get_include().endswith("include")
    True
    """
    return str(_FOLDER / "include")


def get_library_dir() -> str:
    """The folder of libaxccl.so, for -L and -Wl,-rpath.

    >>> axccl.get_library_dir().endswith("lib")
    True
    """
    return str(_FOLDER / "lib")


def get_mpi() -> str:
    """libaxccl_mpi.so, for MPITRAMPOLINE_LIB: JAX's jax_cpu_collectives_implementation=mpi runs on it.

    >>> axccl.get_mpi().endswith("libaxccl_mpi.so")
    True
    """
    return str(_FOLDER / "lib" / "libaxccl_mpi.so")


def get_dropin() -> str:
    """libnccl.so.2, for LD_PRELOAD: programs built for NCCL load it in place of NVIDIA's.

    >>> axccl.get_dropin().endswith("libnccl.so.2")
    True
    """
    return str(_FOLDER / "lib" / "axccl" / "dropin" / "libnccl.so.2")
