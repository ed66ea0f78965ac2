"""PyTorch and JAX on this library, where they are installed."""

import os

from gpu_check.steps import ROOT, LeftOut, Outcome, Table

RANKS = 2
VERSION_MARK = "+axccl"  # in what the library prints with NCCL_DEBUG=VERSION


def library_environment(setup):
    """Puts the library in NCCL's place, also for those that look it up by dlopen("libnccl.so.2")."""
    env = setup.dropin_environment(NCCL_DEBUG="VERSION", PYTHONDONTWRITEBYTECODE="1")
    env["LD_PRELOAD"] = ":".join(path for path in ("libnccl.so.2", env["LD_PRELOAD"]) if path)
    return env


def check(setup, module, python):
    """The part: of `torch` or `jax`."""
    if setup.software:
        raise LeftOut("the software GPU runs PTX only, and this holds machine code")
    probe = setup.run([python, "-c", f"import {module}; print({module}.__version__)"], 120)
    if not probe.ok:
        raise LeftOut(f"{module} cannot be imported by {python}")
    outcome = Outcome(module)
    rows = []
    for ranks in sorted({RANKS, 2 * RANKS, len(setup.gpus)} - {1}):
        run = setup.run([python, os.path.join(ROOT, "tests", "clients", f"{module}_check.py"), "--ranks", str(ranks)],
                        300, library_environment(setup))
        log = setup.keep(f"{module}-{ranks}", run)
        result = "passed" if run.ok else run.how()
        if run.ok and VERSION_MARK not in run.output:
            result = "ran, but not on this library"
        rows.append([f"{ranks} processes", result, run.seconds, log])
    outcome.tables.append(Table(f"{module} {probe.output.strip().splitlines()[-1]}", ["ranks", "result", "seconds", "log"], rows))
    bad = [f"{row[0]}: {row[1]}" for row in rows if row[1] != "passed"]
    outcome.state = "failed" if bad else "passed"
    outcome.summary = "; ".join(bad) or f"{len(rows)} runs passed"
    return outcome
