"""Two processes that share a GPU, with and without CUDA's Multi-Process Service, against as many ranks of one process.

Without the service kernels of different processes take turns on a GPU. Memory is ncclMemAlloc's, and once more cuMemAlloc's.
"""

import os
import socket

from gpu_check import bench, mps
from gpu_check.steps import Failed, Figure, Outcome, Table, size_name

RANKS = 2
SIZE = 256 << 20
OPERATIONS = ["all_reduce", "all_gather"]
MEMORY = {"ncclMemAlloc": ["--mapped"], "cuMemAlloc": []}
TURNS, MPS = "take turns", "under MPS"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def slowest(rows_by_process):
    """Microseconds by operation."""
    return {rows[0]["operation"]: max(row["us"] for row in rows) for rows in zip(*rows_by_process)}


def one_gpu(setup, **more):
    """The environment in which all ranks share the GPU."""
    if len(setup.gpus) > 1:
        more["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return setup.environment(SOFTGPU_DEVICES=1, **more)


def run_all(setup, name, commands, environment):
    """Microseconds by operation, for programs that run at the same time."""
    runs = setup.run_together(commands, 300, environment)
    for i, run in enumerate(runs):
        setup.keep(f"{name}-{i}".replace(" ", "-").replace(",", ""), run)
    return slowest([setup.must(name, run).json()["large"] for run in runs])


def measure(setup, memory, how, environment, size, repeats):
    """Rows of (operation, memory, how two share the GPU, us in one process, us in two)."""
    command = bench.command(setup, RANKS, [size], repeats, "--operations", ",".join(OPERATIONS), *MEMORY[memory])
    one = run_all(setup, f"one process, {memory}", [command], one_gpu(setup))
    two = run_all(setup, f"two processes, {memory}, {how}", [[*command, "--only", str(rank)] for rank in range(RANKS)],
                  one_gpu(setup, NCCL_COMM_ID=f"127.0.0.1:{free_port()}", **environment))
    return [(operation, memory, how, one[operation], two[operation]) for operation in OPERATIONS]


def measure_each(setup, how, environment, size, repeats, outcome):
    """Measures with every kind of memory. Failures become notes."""
    rows = []
    for memory in MEMORY:
        try:
            rows += measure(setup, memory, how, environment, size, repeats)
        except Failed as reason:
            outcome.state = "failed"
            outcome.notes.append(str(reason))
    return rows


def with_mps(setup, size, repeats, outcome):
    if setup.software:
        outcome.notes.append("no MPS: it is a service of a real driver")
        return []
    if not mps.installed():
        outcome.notes.append(f"no MPS: there is no {mps.CONTROL} in PATH")
        return []
    try:
        with mps.Mps(setup, os.path.join(setup.scratch, "mps")) as service:
            return measure_each(setup, MPS, service.environment, size, repeats, outcome)
    except Failed as reason:
        outcome.notes.append(f"no MPS: {reason}")
        return []


def figures(rows, size):
    return [Figure(f"two processes, {operation}", one / two, f"{memory}, {size_name(size)}")
            for operation, memory, how, one, two in rows if how == MPS and size == SIZE]


def check(setup, size, repeats):
    """The part."""
    outcome = Outcome("processes")
    # First what has bars: taking turns may need all the time of this part.
    rows = with_mps(setup, size, repeats, outcome)
    # An empty folder: no daemon is found there, though one may run at the default place.
    apart = os.path.join(setup.scratch, "no-mps")
    os.makedirs(apart, exist_ok=True)
    rows += measure_each(setup, TURNS, {"CUDA_MPS_PIPE_DIRECTORY": apart}, size, repeats, outcome)
    if size != SIZE:
        outcome.notes.append(f"the bars are for {size_name(SIZE)}")
    outcome.figures = figures(rows, size)
    outcome.tables.append(Table(f"{RANKS} ranks on one GPU, {size_name(size)}", [
        "operation", "memory", "two processes", "us in two processes", "us in one", "one / two"], [
        [operation, memory, how, two, one, one / two] for operation, memory, how, one, two in rows]))
    outcome.summary = ", ".join(f"{figure.case}: {figure.value:.2f}" for figure in outcome.figures) or (
        f"{len(rows)} figures, none for the bars")
    return outcome
