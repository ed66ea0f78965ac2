"""PyTorch and JAX on this library, where they are installed."""

import os

from gpu_check.steps import ROOT, LeftOut, Outcome, Table

RANKS = 2
# Where their kernels cannot run: without the library, which only checks the scripts.
WITHOUT_GPU = {"torch": ["--backend", "gloo", "--device", "cpu"], "jax": ["--platform", "cpu"]}
VERSION_MARK = "+axccl"  # in what the library prints with NCCL_DEBUG=VERSION


def client_environment(setup):
    """Puts the library in NCCL's place, also for programs that call dlopen("libnccl.so.2")."""
    if setup.software:
        return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    env = setup.dropin_environment(NCCL_DEBUG="VERSION", PYTHONDONTWRITEBYTECODE="1")
    env["LD_PRELOAD"] = ":".join(path for path in ("libnccl.so.2", env["LD_PRELOAD"]) if path)
    return env


def version(setup, module, python):
    probe = setup.run([python, "-c", f"import {module}; print({module}.__version__)"], 120)
    if not probe.ok:
        raise LeftOut(f"{module} cannot be imported by {os.path.basename(python)}; --python names another")
    return probe.output.strip().splitlines()[-1]


def result_of(run, software):
    if not run.ok:
        return run.how()
    return "passed" if software or VERSION_MARK in run.output else "ran, but not on this library"


def check(setup, module, python):
    """The part for `torch` or `jax`."""
    name = f"{module} {version(setup, module, python)}"
    command = [python, os.path.join(ROOT, "tests", "clients", f"{module}_check.py")]
    outcome = Outcome(module)
    if setup.software:
        command += WITHOUT_GPU[module]
        outcome.notes.append("On CPU memory and without this library, as its kernels cannot run on the software GPU: this "
                             "checks the script.")
    rows = []
    for ranks in sorted({RANKS, 2 * RANKS, len(setup.gpus)} - {1}):
        run = setup.run([*command, "--ranks", str(ranks)], 300, client_environment(setup))
        setup.keep(f"{module}-{ranks}", run)
        last = [line for line in run.output.splitlines() if ": all right" in line]
        rows.append([f"{ranks} processes", result_of(run, setup.software), run.seconds, last[-1] if last else None])
    outcome.tables.append(Table(name, ["ranks", "result", "seconds", "last line of its output"], rows))
    bad = [f"{row[0]}: {row[1]}" for row in rows if row[1] != "passed"]
    outcome.state = "failed" if bad else "passed"
    outcome.summary = "; ".join(bad) or f"{len(rows)} runs passed{', without this library' if setup.software else ''}"
    return outcome
