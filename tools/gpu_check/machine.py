"""A description of the machine."""

import json
import os
import platform
import re
import shutil

from gpu_check.children import find_tool
from gpu_check.steps import Failed, Outcome, Table

# nvidia-smi's names.
QUERIES = ["name", "driver_version", "compute_cap", "memory.total", "memory.used", "clocks.current.sm", "clocks.max.sm",
           "clocks.current.memory", "clocks.max.memory", "clocks_event_reasons.active", "power.limit", "temperature.gpu",
           "ecc.mode.current", "mig.mode.current", "compute_mode", "pcie.link.gen.current", "pcie.link.width.current"]


def processor():
    model = platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}"


def ask_nvidia_smi(setup):
    """Rows of a table: a query and its answer for each GPU."""
    run = query_nvidia_smi(setup, QUERIES)
    found = rows_of(QUERIES, run.output) if run.ok else []
    if found or run.timed_out:
        return found
    # An old one refuses a whole list for one unknown name. Each call takes a while.
    for query in QUERIES:
        run = query_nvidia_smi(setup, [query])
        found += rows_of([query], run.output) if run.ok else []
    return found


def query_nvidia_smi(setup, queries):
    return setup.run(["nvidia-smi", "--query-gpu=" + ",".join(queries), "--format=csv,noheader"], 20)


def rows_of(queries, text):
    """The answers by query, or nothing if their number is wrong: a GPU a line, separated by commas."""
    gpus = [[word.strip() for word in line.split(",")] for line in text.strip().splitlines()]
    if any(len(answers) != len(queries) for answers in gpus):
        return []
    return [[query, *(answers[i] for answers in gpus)] for i, query in enumerate(queries)]


def describe(setup):
    """The part. Leaves the GPUs in setup.gpus."""
    outcome = Outcome("machine")
    facts = [["processor", processor()], ["mode", "software GPU" if setup.software else "GPU"]]
    facts += [[tool, tool_version(setup, tool)] for tool in ("nvcc", "compute-sanitizer", "mpirun")]
    run = setup.run(setup.python("cuda"), 60, setup.environment())
    if not run.ok:
        raise Failed(f"the CUDA driver cannot be used: {run.output.strip()}")
    found = json.loads(run.output.strip().splitlines()[-1])
    setup.gpus = found["gpus"]
    facts.append(["CUDA driver", found["driver"]])
    for i, gpu in enumerate(setup.gpus):
        facts.append([f"GPU {i}", f"{gpu['name']}, compute capability {gpu['capability']}, {gpu['multiprocessors']} "
                      f"multiprocessors, {gpu['memory'] / (1 << 30):.1f} GiB"])
    outcome.tables.append(Table("Machine", ["what", "is"], facts))
    if not setup.software and shutil.which("nvidia-smi"):
        try:
            rows = ask_nvidia_smi(setup)
            outcome.tables.append(Table("nvidia-smi", ["query", *[f"GPU {i}" for i in range(len(setup.gpus))]], rows))
            links = setup.run(["nvidia-smi", "topo", "-m"], 20)
            if links.ok:
                setup.keep("nvidia-smi-topo", links)
        except Failed as reason:  # the GPUs may work all the same
            outcome.notes.append(f"nvidia-smi: {reason}")
    if not setup.gpus:
        raise Failed("the CUDA driver sees no GPU")
    outcome.summary = f"{len(setup.gpus)} x {setup.gpus[0]['name']}"
    return outcome


def tool_version(setup, name):
    path = find_tool(name)
    if path is None:
        return "not found"
    found = re.search(r"\d+\.\d+(\.\d+)*", setup.run([path, "--version"], 20).output)
    return found.group(0) if found else "found"
