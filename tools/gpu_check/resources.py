"""What the interpreter kernel needs of a multiprocessor, as the CTest cuda_resources_test prints it for every architecture.

Spills are what cuda_stack_test finds in the machine code: accesses to the stack in the kernel, or in a loop of what it
calls. Functions that save registers for their caller where they are entered and left are none, though ptxas calls them so.
"""

import re

from gpu_check import suites
from gpu_check.steps import Failed, Figure, LeftOut, Outcome, Table

TEST, STACK_TEST = "cuda_resources_test", "cuda_stack_test"
THREADS = 512  # of a block: kMaxThreads of kernels/cuda/launch.h
# Threads and KiB of shared memory of a multiprocessor; from sm_80 on, each block takes 1 KiB more than it requests.
# Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
MULTIPROCESSORS = {75: (1024, 64), 80: (2048, 164), 86: (1536, 100), 87: (1536, 164), 89: (1536, 100), 90: (2048, 228),
                   100: (2048, 228), 103: (2048, 228), 120: (1536, 100), 121: (1536, 100)}
REGISTERS = 65536  # of a multiprocessor, handed out in eights a thread


def parse(text):
    """{architecture: {"registers": 64, ...}} of lines "-- sm_90: 64 registers, 344 bytes of stack, no spills"."""
    found = {}
    for architecture, facts in re.findall(r"-- sm_(\d+): (.*)", text):
        found[int(architecture)] = {name.strip(): 0 if number == "no" else int(number) for number, name in re.findall(
            r"(\d+|no) (?:bytes )?(?:of )?([^,]+)", facts)}
    return found


def spills(text):
    """The number of failed checks; nothing if they did not run."""
    failed = len(re.findall("registers on the stack", text))
    return failed if failed or re.search(r"\[  PASSED  \] [1-9]", text) else None


def occupancy(architecture, facts):
    """Share of the threads that a multiprocessor can have, in blocks of the largest size; nothing if it is not known."""
    if architecture not in MULTIPROCESSORS or "registers" not in facts:
        return None
    threads, shared = MULTIPROCESSORS[architecture]
    block_shared = facts.get("shared memory", 0) + (1024 if architecture >= 80 else 0)
    blocks = min(threads // THREADS, REGISTERS // (-(-facts["registers"] // 8) * 8 * THREADS),
                 shared * 1024 // max(1, block_shared))
    return blocks * THREADS / threads


def figures(found, spilling):
    shares = [(occupancy(architecture, facts), architecture) for architecture, facts in found.items()]
    result = [Figure("occupancy", share, f"sm_{architecture}") for share, architecture in shares if share is not None]
    if spilling is not None:
        result.append(Figure("spills", spilling, "functions of all architectures"))
    return result


def run_test(setup, name):
    """A Run of the test; nothing if there is none."""
    found = suites.entries_of(setup, "-R", f"^{name}$")
    if not found:
        return None
    run = suites.run_entry(setup, found[0])
    setup.keep(name, run)
    return run


def check(setup):
    """The part."""
    run, stack = run_test(setup, TEST), run_test(setup, STACK_TEST)
    if run is None:
        raise LeftOut(f"the build has no {TEST}")
    found = parse(setup.must(TEST, run).output)
    if not found:
        raise Failed(f"{TEST} names no architecture")
    spilling = None if stack is None else spills(stack.output)
    outcome = Outcome("resources", figures=figures(found, spilling))
    names = list(dict.fromkeys(name for facts in found.values() for name in facts))
    outcome.tables.append(Table("Kernel axccl_run", ["architecture", *names, f"occupancy in blocks of {THREADS} threads"], [
        [f"sm_{architecture}", *[facts.get(name) for name in names], occupancy(architecture, facts)]
        for architecture, facts in sorted(found.items())]))
    if spilling is None:
        outcome.notes.append(f"{STACK_TEST} did not run")
    outcome.summary = f"{len(found)} architectures"
    return outcome
