"""Builds the library and the perf programs, and the tests where their libraries are installed."""

import os
import re
import shutil

from gpu_check.children import find_tool
from gpu_check.steps import ROOT, Failed, Outcome, Setup, shown

# A header of the build, its Debian package, and what is omitted without it (nothing: required).
HEADERS = [("sodium.h", "libsodium-dev", ""), ("xxhash.h", "libxxhash-dev", ""),
           ("gtest/gtest.h", "libgtest-dev", "the tests"), ("nlohmann/json.hpp", "nlohmann-json3-dev", "the tests"),
           ("zstd.h", "libzstd-dev", "")]
COMMANDS = [("c++", "build-essential"), ("cmake", "cmake"), ("pkg-config", "pkg-config")]
MINIMUM_CMAKE = (3, 25)


def cmake_version(text):
    found = re.search(r"version (\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def has_header(setup: Setup, header):
    source = os.path.join(setup.scratch, "probe.cc")
    with open(source, "w") as file:
        file.write(f"#include <{header}>\n")
    return setup.run(["c++", "-E", source, "-o", os.devnull], 60).ok


def missing(setup):
    """(what the build requires and lacks, [(header, package, what is omitted)])."""
    required = [f"{command} (Debian: {package})" for command, package in COMMANDS if shutil.which(command) is None]
    if required:
        return required, []
    found = cmake_version(setup.run(["cmake", "--version"], 20).output)
    if found < MINIMUM_CMAKE:
        required.append(f"CMake {MINIMUM_CMAKE[0]}.{MINIMUM_CMAKE[1]} or newer (here: {found[0]}.{found[1]})")
    if find_tool("nvcc") is None:
        required.append("nvcc of the CUDA toolkit (set CUDA_HOME where it is not in /usr/local/cuda)")
    lacking = [entry for entry in HEADERS if not has_header(setup, entry[0])]
    required += [f"{header} (Debian: {package})" for header, package, part in lacking if not part and header != "zstd.h"]
    return required, [entry for entry in lacking if entry[2]]


def build(setup, jobs):
    """The part."""
    outcome = Outcome("build")
    required, optional = missing(setup)
    if required:
        raise Failed("the library cannot be built. Missing: " + "; ".join(required) +
                     ". Install these, or copy headers and libraries from a machine that has them and point "
                     "CPATH, LIBRARY_PATH and PKG_CONFIG_PATH there.")
    for header, package, part in optional:
        outcome.notes.append(f"{part} are left out: no {header} (Debian: {package})")
    options = [f"-DAXCCL_BUILD_TESTS={'OFF' if optional else 'ON'}", "-DAXCCL_BUILD_PERF=ON"]
    if shutil.which("ninja") and not os.path.exists(os.path.join(setup.build, "CMakeCache.txt")):
        options += ["-G", "Ninja"]
    run = setup.run(["cmake", "-S", ROOT, "-B", setup.build, *options], 300)
    setup.keep("configure", run)
    setup.must("cmake", run)
    outcome.notes += [line.strip("- ") for line in run.output.splitlines() if "Left out" in line]
    if any("the CUDA device" in note for note in outcome.notes):
        raise Failed("CMake did not find the CUDA toolkit, so the library would have no GPUs: " + outcome.notes[-1])
    run = setup.run(["cmake", "--build", setup.build, "-j", str(jobs)], 3600)
    log = setup.keep("build", run)
    setup.must(f"the build (all of it: {log})", run)
    outcome.summary = f"{shown(setup.build)}, {run.seconds:.0f} s"
    return outcome
