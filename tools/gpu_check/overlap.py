"""How much of a collective hides behind a matrix product (perf/overlap), by calls and by pipelines of each engine.

Ranks that share a GPU share its memory: their communication is a copy within it, which the report says beside the figures.
"""

import json
import os

from gpu_check.steps import Figure, Outcome, Table

RANKS = [2, 4]
# Copy engines do not reduce.
PATTERNS = {"ag_matmul": ["kernel", "copy"], "ag_matmul_own": ["kernel", "copy"], "matmul_ar": ["kernel"],
            "matmul_rs": ["kernel"]}


def figures(rows):
    return [Figure(f"overlap, {engine}", efficiency, f"{pattern}, {ranks} ranks")
            for ranks, pattern, engine, mode, _, efficiency in rows if mode == "pipeline"]


def sizes(software):
    if software:
        return ["--m", "32", "--k", "256", "--n", "32", "--slices", "4", "-N", "1", "--plain"]
    return ["--m", "8192", "--k", "8192", "--n", "4096", "--slices", "8", "-N", "11", "--balance"]


def command(program, ranks, pattern, engine, software, path):
    """Writes its results to `path`."""
    return [program, "--device", "cuda", "-t", str(ranks), "--pattern", pattern, "--engine", engine, *sizes(software), "-J",
            path]


def table(rows):
    return Table("Product and collective, threads of one process; overlap: the longer part alone / both", [
        "ranks", "pattern", "engine of pipelines", "mode", "ms", "overlap"], rows)


def measure(setup, program, ranks, pattern, engine):
    name = f"overlap-{ranks}-{pattern}-{engine}"
    path = os.path.join(setup.scratch, name + ".json")
    run = setup.run(command(program, ranks, pattern, engine, setup.software, path), 120,
                    setup.environment(CUDA_DEVICE_MAX_CONNECTIONS=32))
    setup.keep(name, run)
    setup.must(name, run)
    with open(path) as file:
        return rows_of(ranks, pattern, engine, json.load(file)["results"])


def rows_of(ranks, pattern, engine, results):
    return [(ranks, pattern, engine, result["mode"], result["both_ms"], result["overlap"]) for result in results]


def check(setup):
    """The part."""
    program = setup.perf_program("overlap_perf")
    outcome = Outcome("overlap")
    rows = []
    for ranks in RANKS:
        for pattern, engines in PATTERNS.items():
            for engine in engines:
                rows += measure(setup, program, ranks, pattern, engine)
    outcome.figures = figures(rows)
    outcome.tables.append(table(rows))
    if len(setup.gpus) < max(RANKS):
        outcome.notes.append("ranks share a GPU and its memory: their communication is a copy within it")
    outcome.summary = f"{len(outcome.figures)} pipelines"
    return outcome
