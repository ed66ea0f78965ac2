"""Where the warps of a kernel wait: Nsight Compute's command ncu on one call of the benchmark.

A call's kernel has all ranks of a group and cannot be repeated by itself: its flags count calls, some of them in memory of
the host. So the whole program runs anew for every pass, and ncu looks at the same launch each time.
"""

import re

from gpu_check.steps import Failed, LeftOut, Outcome, Table, tail

TOOL = "ncu"
SECTIONS = ["LaunchStats", "Occupancy", "SpeedOfLight", "MemoryWorkloadAnalysis", "WarpStateStats"]
# The empty ones that load the kernel's two entries, and as many calls: the first ones find things out.
SKIPPED_LAUNCHES = 2 + 2
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "0"}  # one kernel for all ranks; those of several devices wait for each other
# Operation and bytes: an interpreted reduction, an interpreted copy, and a small call.
CASES = [("all_reduce", 64 << 20), ("all_gather", 64 << 20), ("all_reduce", 64)]
NO_COUNTERS = "ERR_NVGPUCTRPERM"


def command(program):
    """The whole command, of one that makes calls."""
    sections = [word for name in SECTIONS for word in ("--section", name)]
    return [TOOL, *sections, "--replay-mode", "application", "--kernel-name", "regex:^axccl_run", "--launch-skip",
            SKIPPED_LAUNCHES, "--launch-count", 1, *program]


def rows_of(output):
    """[metric, unit, value] of the tables that ncu prints: columns are two or more blanks apart, and a unit may be missing."""
    rows = []
    for line in output.splitlines():
        found = re.match(r" {4}(\S(?:.*?\S)?)(?: {2,}(\S+))? {2,}([-\d.,]+)\s*$", line)
        if found:
            rows.append([found.group(1), found.group(2) or "", found.group(3)])
    return rows


def outcome_of(name, run):
    if NO_COUNTERS in run.output:
        raise LeftOut(f"{TOOL} may not read the GPU's counters; allow it: NVreg_RestrictProfilingToAdminUsers=0")
    rows = rows_of(run.output)
    if not run.ok or not rows:
        raise Failed(f"{TOOL} {run.how()} and printed {len(rows)} figures; the end of its output:\n{tail(run.output)}")
    named = {row[0]: f"{row[2]} {row[1]}".strip() for row in rows}
    summary = "; ".join(f"{metric}: {named[metric]}" for metric in ("Duration", "Memory Throughput") if metric in named)
    return Outcome(name, summary=summary, tables=[Table(name, ["metric", "unit", "value"], rows)])
