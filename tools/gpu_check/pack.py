"""Packs what a machine with a GPU, and nothing else, needs into one folder: --pack. prebuilt.py runs it there."""

import json
import os
import re
import shutil
import subprocess

from gpu_check import clients, plan, suites
from gpu_check.children import find_tool
from gpu_check.steps import PACKAGE_PARENT, Failed, Setup

MOST_BYTES = 48 << 20
MANIFEST = "manifest.json"
LIBRARIES = "lib"
# Used only where the machine has none, or too old ones: its own programs may need newer ones.
RUNTIME = os.path.join(LIBRARIES, "runtime")
RUNTIME_NAMES = ("libstdc++.", "libgcc_s.")
# Libraries that every machine with a driver has, and the one that is packed by its own name.
NOT_PACKED = re.compile(r"(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libutil|libcuda|libaxccl|libnccl)"
                        r"\.so")


def must_run(command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failed(f"{os.path.basename(command[0])} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def put(source, target):
    """Copies a program or library without its symbols."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    must_run(["strip", "--strip-unneeded", "-o", target, os.path.realpath(source)])
    os.chmod(target, 0o755)


def needed(path):
    """(name, path or None) of the shared libraries of a program that are to be packed."""
    found = []
    for line in must_run(["ldd", path]).splitlines():
        match = re.match(r"\s*(\S+) => (not found|/\S+)", line)
        if match and not NOT_PACKED.match(match.group(1)):
            found.append((match.group(1), None if match.group(2) == "not found" else match.group(2)))
    return found


def of_toolkit(name):
    """A library of the CUDA toolkit, which the loader need not know."""
    nvcc = find_tool("nvcc")
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "lib64", name) if nvcc else ""
    return path if os.path.exists(path) else None


def put_dependencies(folder, sources):
    libraries = dict(pair for source in sources for pair in needed(source))
    for name, path in libraries.items():
        path = path or of_toolkit(name)
        if path is None:
            raise Failed(f"{name}, which is to be packed, is not found")
        put(path, os.path.join(folder, RUNTIME if name.startswith(RUNTIME_NAMES) else LIBRARIES, name))


def put_fake_gpus(folder):
    compiler = shutil.which("cc")
    if compiler is None:
        raise Failed("there is no cc")
    target = os.path.join(folder, plan.FAKE_GPUS)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    source = os.path.join(PACKAGE_PARENT, "gpu_check", "fake_gpus.c")
    must_run([compiler, "-O1", "-fPIC", "-shared", "-s", "-o", target, source, "-ldl"])


def must_stand_alone(path, build):
    """A program that opens a file of the build would fail where it is sent. (Its search path for libraries is harmless.)"""
    with open(path, "rb") as file:
        found = re.search(re.escape(os.path.join(build, "").encode()) + rb"[^\0]+", file.read())
    if found:
        raise Failed(f"{os.path.basename(path)} names {found.group().decode(errors='replace')}, which only this machine has")


def put_this_program(folder):
    package = os.path.join(folder, "gpu_check")
    os.makedirs(package)
    for name in os.listdir(os.path.join(PACKAGE_PARENT, "gpu_check")):
        if name.endswith((".py", ".ptx")):
            shutil.copy(os.path.join(PACKAGE_PARENT, "gpu_check", name), package)
    shutil.copy(os.path.join(PACKAGE_PARENT, "gpu-check"), folder)


def put_clients(folder):
    target = os.path.join(folder, os.path.basename(clients.PACKED))
    os.makedirs(target)
    for name in sum(clients.SCRIPTS.values(), []):
        shutil.copy(os.path.join(clients.SOURCES, name), target)


def make_empty(folder):
    if os.path.exists(folder):
        if os.listdir(folder) and not os.path.exists(os.path.join(folder, MANIFEST)):
            raise Failed(f"{folder} has other files, and no {MANIFEST} of an earlier --pack")
        shutil.rmtree(folder)
    os.makedirs(folder)


def size_of(folder):
    return sum(os.path.getsize(os.path.join(parent, name)) for parent, _, names in os.walk(folder) for name in names)


def pack(chosen):
    """Packs; returns a line that says what."""
    setup = Setup(chosen.build, chosen.software, chosen.devices, None)
    nccl = plan.programs(chosen.nccl_tests)
    if chosen.nccl_tests and not nccl:
        raise Failed(f"--nccl-tests {chosen.nccl_tests}: no programs in it or in its folder build; with --pack, give a build")
    tests = plan.packable(suites.entries(setup), setup.build)
    planned = plan.Plan(tests, [name for name, _ in nccl if name in chosen.programs], chosen.fake_gpus, chosen.max_bytes,
                        chosen.software)
    make_empty(chosen.pack)
    sources = {entry.command[0]: plan.TESTS for entry in tests}
    sources.update({setup.perf_program(name): "perf" for name in ("enqueue_perf", "overlap_perf")})
    sources.update({path: plan.NCCL_TESTS for name, path in nccl if name in chosen.programs})
    for source, where in sources.items():
        target = os.path.join(chosen.pack, where, os.path.basename(source))
        put(source, target)
        must_stand_alone(target, setup.build)
    put(setup.library(), os.path.join(chosen.pack, plan.LIBRARY))
    put(os.path.join(setup.build, "dropin", "libnccl.so.2"), os.path.join(chosen.pack, "dropin", "libnccl.so.2"))
    put_dependencies(chosen.pack, [setup.library(), *sources])
    put_fake_gpus(chosen.pack)
    put_this_program(chosen.pack)
    put_clients(chosen.pack)
    manifest = {"environment": plan.ENVIRONMENT, "health": planned.health(), "steps": planned.steps()}
    with open(os.path.join(chosen.pack, MANIFEST), "w") as file:
        json.dump(manifest, file, indent=1)
        file.write("\n")
    size = size_of(chosen.pack)
    if size > MOST_BYTES:
        raise Failed(f"{chosen.pack} has {size / (1 << 20):.1f} MiB, more than {MOST_BYTES >> 20}")
    return f"{chosen.pack}: {len(manifest['steps'])} steps, {size / (1 << 20):.1f} MiB"
