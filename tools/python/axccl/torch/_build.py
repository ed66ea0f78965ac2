"""Compiles the extension against the installed PyTorch, once for each pair of versions."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import sys
import sysconfig
from types import ModuleType

import torch

_SOURCE = pathlib.Path(__file__).resolve().parent / "csrc"
_OLDEST = (2, 8)


def _package() -> pathlib.Path:
    import axccl

    return pathlib.Path(axccl.__file__).parent


def _key() -> str:
    """What the extension depends on: sources, headers, PyTorch, Python and the library."""
    digest = hashlib.sha256()
    for path in sorted(_SOURCE.iterdir()) + sorted(_include().glob("**/*.h")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    digest.update(f"{torch.__version__} {torch.__file__} {sys.version} {sysconfig.get_platform()}".encode())
    return digest.hexdigest()[:16]


def _include() -> pathlib.Path:
    for folder in (_package() / "include", pathlib.Path(os.environ.get("AXCCL_INCLUDE", "/nonexistent"))):
        if (folder / "axccl" / "axccl.h").exists():
            return folder
    raise ImportError(f"axccl.torch: no headers in {_package() / 'include'}; install the wheel, or set AXCCL_INCLUDE to the "
                      "folder that has axccl/axccl.h")


def _library() -> pathlib.Path:
    """The library that axccl itself has loaded: a second copy would be a second world of ranks."""
    import axccl  # noqa: F401

    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if pathlib.Path(path).name.startswith("libaxccl.so"):
                return pathlib.Path(path)
    raise ImportError("axccl.torch: libaxccl.so is not loaded, although axccl is; reinstall axccl")


def _cache() -> pathlib.Path:
    base = os.environ.get("AXCCL_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "axccl")
    return pathlib.Path(base) / "torch"


def _check_version() -> None:
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < _OLDEST:
        raise ImportError(f"axccl.torch: PyTorch {torch.__version__} is too old; install 2.8 or newer")


def load() -> ModuleType:
    """The extension for this PyTorch; compiled if there is none yet."""
    _check_version()
    name = f"axccl_torch_{_key()}"
    folder = _cache() / name
    path = folder / f"{name}.so"
    library = _library()
    if not path.exists():
        _compile(name, folder, library)
    # By its full path and under its own name: one for another PyTorch has another name.
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, path, loader=loader))
    loader.exec_module(module)
    return module


def _compile(name: str, folder: pathlib.Path, library: pathlib.Path) -> None:
    import torch.utils.cpp_extension as extension

    # Not where it is loaded from: another process must not find half of it.
    building = folder.with_name(f"{name}.build")
    folder.mkdir(parents=True, exist_ok=True)
    building.mkdir(parents=True, exist_ok=True)
    print(f"axccl.torch: compiling the extension for PyTorch {torch.__version__} in {folder}, once", file=sys.stderr)
    try:
        # Holds a lock on the folder, so that processes which start together compile once.
        extension.load(
            name,
            [str(path) for path in sorted(_SOURCE.glob("*.cc"))],
            extra_cflags=["-O2", "-DUSE_C10D"],
            extra_include_paths=[str(_include()), str(_SOURCE)],
            extra_ldflags=[str(library), f"-Wl,-rpath,{library.parent}"],
            build_directory=str(building),
            is_python_module=False,
        )
        copy = folder / f"{name}.so.{os.getpid()}"
        shutil.copyfile(building / f"{name}.so", copy)
        os.replace(copy, folder / f"{name}.so")
    except (RuntimeError, OSError) as error:
        raise ImportError(f"axccl.torch: the extension cannot be compiled: {error}; it needs a C++17 compiler and ninja "
                          "(pip install ninja)") from error
