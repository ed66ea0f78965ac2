"""The host's cost of enqueueing an operation (perf/enqueue)."""

import json
import os

from gpu_check.steps import Figure, Outcome, Table

RANKS = [2, 8]
NAMES = {"group": "in a group of all ranks", "call": "without a group"}


def figures(rows):
    return [Figure("enqueue, " + key, us, f"{ranks} ranks") for ranks, key, us in rows]


def summary(rows):
    return "; ".join(f"{ranks} ranks, {NAMES[key]}: {us:.2f} us" for ranks, key, us in rows)


def check(setup, repeats):
    """The part. `repeats`: operations per round, and rounds."""
    program = setup.perf_program("enqueue_perf")
    outcome = Outcome("enqueue")
    rows = []
    for ranks in RANKS:
        path = os.path.join(setup.scratch, f"enqueue-{ranks}.json")
        run = setup.run([program, "-g", str(ranks), "-n", str(repeats[0]), "-N", str(repeats[1]), "-J", path], 120,
                        setup.environment(AXCCL_DEVICE="cuda"))
        setup.keep(f"enqueue-{ranks}", run)
        setup.must(f"enqueue_perf of {ranks} ranks", run)
        with open(path) as file:
            rows += [(ranks, result["case"], result["median_us"]) for result in json.load(file)["results"]]
    outcome.figures = figures(rows)
    outcome.tables.append(Table("Host time of a call (all_reduce of 8 bytes, all ranks in one thread), not waited for", [
        "ranks", "how", "us"], [[ranks, NAMES[key], us] for ranks, key, us in rows]))
    outcome.summary = summary(rows)
    return outcome
