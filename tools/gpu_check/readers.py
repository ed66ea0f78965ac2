"""Judges the programs that a packed folder's steps run: Outcomes from their output. READERS has the names of the manifest."""

import json
import os
import re

from gpu_check import bench, dimensions, enqueue, kernel_profile, nccl_tests, overlap, probe, suites
from gpu_check.steps import Failed, LeftOut, Outcome, Table, size_name, tail


def test(setup, step, run):
    """A program of GoogleTest, or any other that tells by its status."""
    if run.status == suites.SKIPPED:
        raise LeftOut(f"skipped: {tail(run.output, 1)}")
    setup.must(step["name"], run)
    counts = [(word, re.search(rf"\[  {word} *\] (\d+) tests?", run.output)) for word in ("PASSED", "SKIPPED")]
    summary = ", ".join(f"{found.group(1)} {word.lower()}" for word, found in counts if found)
    return Outcome(step["name"], summary=summary or tail(run.output, 1))


def exit_status(setup, step, run):
    setup.must(step["name"], run)
    return Outcome(step["name"], summary=run.how())


def of_bench(setup, step, run):
    found = setup.must(step["name"], run).json()
    outcome = Outcome(step["name"], tables=bench.tables(found["large"], [found["latency"]]))
    outcome.figures = bench.large_figures(found["large"], setup.software) + bench.latency_figures([found["latency"]])
    best = max((row["share_of_floor"] for row in found["large"] if row["operation"] == "all_reduce"), default=0)
    outcome.summary = f"all results are right; all_reduce: at best {best:.2f} of the copy floor"
    return outcome


def nccl_test(setup, step, run):
    if nccl_tests.problem(run):
        raise Failed(f"{nccl_tests.problem(run)}; the end of what it printed:\n{tail(run.output)}")
    rows = nccl_tests.parse_rows(run.output)
    outcome = Outcome(step["name"], summary=f"0 wrong of {len(rows)} lines")
    outcome.tables.append(Table(" ".join(step["command"]), ["size", "us", "busbw GB/s", "us in place", "busbw GB/s"], [
        [size_name(size), *(out[0:3:2] if out else (None, None)), *(inside[0:3:2] if inside else (None, None))]
        for size, out, inside in rows]))
    return outcome


def of_profile(_, step, run):
    return kernel_profile.outcome_of(step["name"], run)


def of_probe(setup, step, run):
    return probe.outcome_of(setup.must(step["name"], run).json())


def written(setup, name):
    """What a program wrote as JSON."""
    with open(os.path.join(setup.scratch, name)) as file:
        return json.load(file)["results"]


def of_enqueue(setup, step, run):
    setup.must(step["name"], run)
    ranks, file = step["about"]
    rows = [(ranks, result["case"], result["median_us"]) for result in written(setup, file)]
    return Outcome(step["name"], figures=enqueue.figures(rows), summary=enqueue.summary(rows))


def of_dimensions(setup, step, run):
    rows = setup.must(step["name"], run).json()
    return Outcome(step["name"], summary="all results are right", figures=dimensions.figures(rows),
                   tables=[dimensions.table(rows)])


def of_overlap(setup, step, run):
    setup.must(step["name"], run)
    ranks, pattern, engine, file = step["about"]
    rows = overlap.rows_of(ranks, pattern, engine, written(setup, file))
    return Outcome(step["name"], figures=overlap.figures(rows), tables=[overlap.table(rows)],
                   summary="; ".join(f"{row[3]}: {row[5]:.2f}" for row in rows if row[5] is not None))


READERS = {"test": test, "exit_status": exit_status, "bench": of_bench, "nccl_test": nccl_test, "probe": of_probe, "enqueue": of_enqueue,
           "profile": of_profile, "dimensions": of_dimensions, "overlap": of_overlap}
