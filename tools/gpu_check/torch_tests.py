"""PyTorch's own tests of its NCCL backend, with this library in NCCL's place.

Tests that want more GPUs than there are skip themselves.
"""

import os
import re

from gpu_check.clients import VERSION_MARK, client_environment, version
from gpu_check.steps import Failed, LeftOut, Outcome, Table

FILE = os.path.join("test", "distributed", "test_c10d_nccl.py")
SECONDS = 3000


def parse(text):
    """Parses unittest's verbose output: (started, skipped, [failures], whether it is complete)."""
    started = re.findall(r"^(\w+) \(\S+\)", text, re.MULTILINE)
    failed = list(dict.fromkeys(re.findall(r"^(?:FAIL|ERROR): (\w+ \(\S+\))", text, re.MULTILINE)))
    end = re.search(r"^Ran (\d+) tests? in", text, re.MULTILINE)
    skipped = re.search(r"^(?:OK|FAILED) \(.*skipped=(\d+)", text, re.MULTILINE)
    return (int(end.group(1)) if end else len(started), int(skipped.group(1)) if skipped else 0, failed, end is not None)


def check(setup, source, python, pattern):
    """The part. `pattern`: for names, like unittest's -k; nothing: all."""
    if not source:
        raise LeftOut("no source: pass --torch-source DIR (PyTorch's, of the version that is installed)")
    path = os.path.join(os.path.abspath(source), FILE)
    if not os.path.exists(path):
        raise Failed(f"--torch-source {source}: there is no {FILE}; give the folder of a checkout of PyTorch")
    name = version(setup, "torch", python)
    if not setup.run([python, "-c", "import expecttest"], 60).ok:
        raise LeftOut(f"{os.path.basename(python)} has no expecttest, without which PyTorch's tests cannot be imported")
    outcome = Outcome("torch-tests")
    run = setup.run([python, path, "-v", *(["-k", pattern] if pattern else [])], SECONDS, client_environment(setup),
                    os.path.dirname(path))
    log = setup.keep("torch-tests", run)
    ran, skipped, failed, ended = parse(run.output)
    if ran == 0 and not run.ok:
        setup.must(FILE, run)
    outcome.tables.append(Table(f"{os.path.basename(FILE)}, PyTorch {name}", ["ran", "skipped", "failed"],
                                [[ran - skipped, skipped, len(failed)]]))
    outcome.summary = f"{ran - skipped} ran, {len(failed)} of them failed, {skipped} were skipped"
    elsewhere = ran > skipped and VERSION_MARK not in run.output
    if setup.software:
        outcome.notes.append("Without a GPU all tests are to skip themselves: this checks how results are read.")
    elif elsewhere:
        outcome.state = "failed"
        outcome.notes.append("They ran, but not on this library.")
    if failed or not run.ok:
        outcome.state = "failed"
        outcome.notes.append("failed: " + (", ".join(failed) or "-") + f" ({log})")
    if not ended:
        outcome.notes.append(f"The run {run.how()} in: {last_started(run.output)}")
    return outcome


def last_started(text):
    names = re.findall(r"^(\w+ \(\S+\))", text, re.MULTILINE)
    return names[-1] if names else "no test"
