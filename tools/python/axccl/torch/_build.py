"""Compiles the extension against the installed PyTorch, once for each pair of versions."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import sys
from types import ModuleType

import torch

from axccl import _build

_SOURCE = pathlib.Path(__file__).resolve().parent / "csrc"
_OLDEST = (2, 8)


def _check_version() -> None:
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < _OLDEST:
        raise ImportError(f"axccl.torch: PyTorch {torch.__version__} is too old; install 2.8 or newer")


def load() -> ModuleType:
    """The extension for this PyTorch; compiled if there is none yet."""
    _check_version()
    key = _build.key("axccl.torch", _SOURCE, f"{torch.__version__} {torch.__file__}")
    name = f"axccl_torch_{key}"
    folder = _build.cache("torch") / name
    path = folder / f"{name}.so"
    library = _build.library("axccl.torch")
    if not path.exists():
        with _build.locked(folder):
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
    # PyTorch's own lock, on which it waits for ever if the process that made it was killed. Ours is held here.
    (building / "lock").unlink(missing_ok=True)
    print(f"axccl.torch: compiling the extension for PyTorch {torch.__version__} in {folder}, once", file=sys.stderr)
    try:
        extension.load(
            name,
            _build.sources(_SOURCE),
            extra_cflags=["-O2", "-DUSE_C10D"],
            extra_include_paths=[str(_build.include("axccl.torch")), str(_SOURCE)],
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
