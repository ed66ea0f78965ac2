"""PyTorch and JAX on this library, where they are installed."""

import os

from gpu_check.steps import PACKAGE_PARENT, ROOT, LeftOut, Outcome, Table

RANKS = 2
SOURCES = os.path.join(ROOT, "tests", "clients")
SCRIPTS = {"torch": ["torch_check.py", "torch_parallel.py", "torch_training.py"], "jax": ["jax_check.py"]}  # the first one is run
PACKED = os.path.join(PACKAGE_PARENT, "clients")  # in a folder of --pack
# Whose kernels the software GPU cannot run: without the library, which only checks the scripts.
WITHOUT_GPU = {"jax": ["--platform", "cpu"]}
VERSION_MARK = "+axccl"  # in what the library prints with NCCL_DEBUG=VERSION


def without_library(setup, module):
    return setup.software and module in WITHOUT_GPU


def is_packed():
    return os.path.isdir(PACKED)


def client_environment(setup, module):
    """Puts the library in NCCL's place, also for programs that call dlopen("libnccl.so.2")."""
    if without_library(setup, module):
        return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    env = setup.dropin_environment(NCCL_DEBUG="VERSION", PYTHONDONTWRITEBYTECODE="1")
    env["LD_PRELOAD"] = ":".join(path for path in ("libnccl.so.2", env["LD_PRELOAD"]) if path)
    if setup.software:  # as tools/softgpu/run does
        env["PYTHONPATH"] = os.path.join(ROOT, "tools", "softgpu", "torch", "site")
        env["SOFTGPU_FOLDER"] = os.path.join(setup.build, "softgpu")
    return env


def version(setup, module, python):
    probe = setup.run([python, "-c", f"import {module}; print({module}.__version__)"], 120)
    if not probe.ok:
        raise LeftOut(f"{module} cannot be imported by {os.path.basename(python)}; --python names another")
    return probe.output.strip().splitlines()[-1]


def result_of(run, without):
    if not run.ok:
        return run.how()
    return "passed" if without or VERSION_MARK in run.output else "ran, but not on this library"


def check(setup, module, python):
    """The part for `torch` or `jax`."""
    if setup.software and is_packed():
        raise LeftOut(f"the software GPU runs {module} from a checkout only")
    name = f"{module} {version(setup, module, python)}"
    command = [python, os.path.join(PACKED if is_packed() else SOURCES, SCRIPTS[module][0])]
    outcome = Outcome(module)
    without = without_library(setup, module)
    if without:
        command += WITHOUT_GPU[module]
        outcome.notes.append("On CPU memory and without this library, as its kernels cannot run on the software GPU: this "
                             "checks the script.")
    rows = []
    for ranks in sorted({RANKS, 2 * RANKS, len(setup.gpus)} - {1}):
        run = setup.run([*command, "--ranks", str(ranks)], 300, client_environment(setup, module))
        setup.keep(f"{module}-{ranks}", run)
        last = [line for line in run.output.splitlines() if ": all right" in line]
        rows.append([f"{ranks} processes", result_of(run, without), run.seconds, last[-1] if last else None])
    outcome.tables.append(Table(name, ["ranks", "result", "seconds", "last line of its output"], rows))
    bad = [f"{row[0]}: {row[1]}" for row in rows if row[1] != "passed"]
    outcome.state = "failed" if bad else "passed"
    outcome.summary = "; ".join(bad) or f"{len(rows)} runs passed{', without this library' if without else ''}"
    return outcome
