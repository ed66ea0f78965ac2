#!/usr/bin/env python3
"""Every function of CUDA's driver and runtime that the binaries of PyTorch and IREE name is one of the software GPU.

    python3 tests/clients/cuda_names_test.py FOLDER     that of the software GPU's libraries

Names are the undefined symbols of the binaries, and strings that look like functions of the driver, which are looked up at
run time. Reads the packages where this interpreter finds them, without importing them.
"""

import ctypes
import importlib.util
import mmap
import pathlib
import re
import subprocess
import sys

PACKAGES = ("torch", "iree")
FUNCTION = re.compile(rb"(?<=\0)cu[A-Z][a-z][A-Za-z0-9]{2,50}(?:_v[2-9])?(?=\0)")
# Strings of that form that are no functions of the driver, and functions that no program needs to have. Beginnings of names.
OTHERS = {
    **{f"cuC{part}": "complex numbers of cuComplex.h" for part in ("abs", "div", "imag", "omplex", "onj", "real")},
    "cuFile": "another library", "cuBlas": "messages", "cuSolver": "messages", "cuSparse": "messages", "cuFft": "messages", "cuRand": "messages",
    "cuTensorMap": "descriptors of the copying unit for tensors, which the software GPU does not have",
    "cuMulticast": "multicast objects, which cuDeviceGetAttribute denies",
    "cuGreenCtx": "green contexts, which are for parts of a device", "cuDeviceGetDevResource": "green contexts",
    "cuCtxFromGreenCtx": "green contexts",
    "cuDevResource": "green contexts", "cuDevSm": "green contexts",
    "cuLogs": "the log of the driver's errors, which PyTorch does without where there is none",
}


def binaries(package):
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        yield from sorted(path for path in pathlib.Path(folder).rglob("*.so*") if path.is_file())


def undefined(path):
    """Names of runtime and driver that the loader must find, each with the library that must have it ("": the driver)."""
    listing = subprocess.run(["nm", "-D", "--undefined-only", str(path)], capture_output=True, text=True, check=False).stdout
    for line in listing.splitlines():
        name, _, version = line.split()[-1].partition("@")
        library = version.lstrip("@")
        if library.startswith("libcudart"):
            yield name, library
        elif re.fullmatch(r"cu[A-Z][a-z]\w+", name):
            yield name, ""


def strings(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return {(match.decode(), "") for match in FUNCTION.findall(data)}


class SoftwareGpu:
    def __init__(self, folder):
        self.driver = ctypes.CDLL(str(folder / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
        self.runtimes = {path.name: ctypes.CDLL(str(path)) for path in folder.glob("libcudart.so.*")}

    def has(self, name, library):
        if library:
            return hasattr(self.runtimes.get(library), name)
        if hasattr(self.driver, name):
            return True
        found, status = ctypes.c_void_p(), ctypes.c_int()
        look_up = self.driver.cuGetProcAddress_v2
        look_up.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p]
        failed = look_up(name.encode(), ctypes.byref(found), 13000, 0, ctypes.byref(status))
        return failed == 0 and bool(found.value)


def main():
    gpu = SoftwareGpu(pathlib.Path(sys.argv[1]).resolve())
    missing, looked_at, seen = [], 0, []
    for package in PACKAGES:
        paths = list(binaries(package))
        if not paths:
            continue
        seen.append(package)
        names = {name: path.name for path in paths for name in (*undefined(path), *strings(path))}
        looked_at += len(names)
        missing += [f"{name} (named by {file} of {package})" for (name, library), file in sorted(names.items())
                    if not gpu.has(name, library) and not name.startswith(tuple(OTHERS))]
    if not seen:
        print(f"SKIPPED: neither {' nor '.join(PACKAGES)} is installed for {sys.executable}")
        return
    for line in missing:
        print(f"The software GPU lacks {line}")
    print(f"{looked_at} functions named by {' and '.join(seen)}: {len(missing)} are missing")
    sys.exit(1 if missing or looked_at < 50 else 0)


if __name__ == "__main__":
    main()
