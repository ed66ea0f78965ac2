"""The tests with the CTest label cuda, on the driver of this run, and compute-sanitizer.

CTest's entries take the software GPU from LD_LIBRARY_PATH. Here they are run without CTest, each with its own environment
less what leads to the software GPU, so that the same programs meet the real driver.
"""

import json
import os
import tempfile

from gpu_check.children import find_tool
from gpu_check.steps import Failed, LeftOut, Outcome, Table

SKIPPED = 77
# Options of the software GPU without which a test is as good.
MEANINGLESS = ["SOFTGPU_DEVICES", "SOFTGPU_SEED", "SOFTGPU_RACES", "SOFTGPU_ARCH"]
SANITIZERS = ["memcheck", "racecheck", "synccheck"]


class Entry:
    """One CTest entry: name, command, environment, labels, seconds."""

    def __init__(self, test):
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        self.name = test["name"]
        self.command = test.get("command", [])  # empty if the program was not built
        self.labels = properties.get("LABELS", [])
        self.seconds = properties.get("TIMEOUT", 300)
        self.folder = properties.get("WORKING_DIRECTORY")
        self.environment = dict(value.split("=", 1) for value in properties.get("ENVIRONMENT", []))

    def own_environment(self):
        """The environment without what leads to the software GPU."""
        own = {}
        for name, value in self.environment.items():
            if name.startswith("SOFTGPU_"):
                continue
            if name in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
                value = ":".join(path for path in value.split(":") if path and "softgpu" not in path)
                if not value:
                    continue
            own[name] = value
        return own

    def needs_software(self):
        """Whether the test rests on what only the software GPU does, or is another one on a real GPU.

        The host writes to memory of the device where the tests allocate no managed memory.
        """
        return ("softgpu" in self.labels or self.environment.get("AXCCL_TEST_GPU_MEMORY") == "device" or
                any(name not in MEANINGLESS for name in self.environment if name.startswith("SOFTGPU_")))


def parse_entries(text):
    return [Entry(test) for test in json.loads(text)["tests"]]


def entries_of(setup, *choice):
    """Those that options of ctest choose. It is asked in a folder of its own, because it replaces the log of the folder
    that it is called for, even if that is the log of a ctest that has started this."""
    if not os.path.exists(os.path.join(setup.build, "CTestTestfile.cmake")):
        raise LeftOut("the tests were not built")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "CTestTestfile.cmake"), "w") as file:
            file.write(f"subdirs([==[{os.path.abspath(setup.build)}]==])\n")
        run = setup.run(["ctest", "--test-dir", folder, *choice, "--show-only=json-v1"], 60)
    return parse_entries(setup.must("ctest", run).output)


def entries(setup):
    found = entries_of(setup, "-L", "^cuda$")
    if not found:
        raise LeftOut("no test has the label cuda")
    return found


def run_entry(setup, entry, prefix=(), factor=1):
    env = setup.environment()
    for name, value in (entry.environment if setup.software else entry.own_environment()).items():
        env[name] = value + ":" + env[name] if name.startswith("LD_") and env.get(name) else value
    return setup.run([*prefix, *entry.command], entry.seconds * factor, env, entry.folder)


def verdict(run):
    if run.status == SKIPPED:
        return "skipped"
    return "passed" if run.ok else run.how()


def tests(setup):
    """The part."""
    outcome = Outcome("tests")
    rows, failed = [], []
    for entry in entries(setup):
        if entry.needs_software() and not setup.software:
            rows.append([entry.name, "left out: needs the software GPU", 0])
            continue
        if not entry.command:
            rows.append([entry.name, "not built", 0])
            if not setup.software:  # otherwise only this tool is tested
                failed.append(f"{entry.name} (not built)")
            continue
        run = run_entry(setup, entry)
        rows.append([entry.name, verdict(run), run.seconds])
        if verdict(run) not in ("passed", "skipped"):
            failed.append(f"{entry.name} ({setup.keep('test-' + entry.name, run)})")
    outcome.tables.append(Table("Tests", ["test", "result", "seconds"], rows))
    return finish(outcome, rows, failed)


def finish(outcome, rows, failed):
    outcome.summary = f"{sum(row[1] == 'passed' for row in rows)} of {len(rows)} passed"
    if failed:
        outcome.state = "failed"
        outcome.notes.append("failed: " + "; ".join(failed))
    return outcome


def sanitizers(setup):
    """The part: a short run of the collectives, and tests with the label sanitize, under each tool."""
    tool = find_tool("compute-sanitizer")
    if setup.software:
        raise LeftOut("compute-sanitizer needs a GPU")
    if tool is None:
        raise LeftOut("compute-sanitizer is not installed (part of the CUDA toolkit)")
    outcome = Outcome("sanitizers")
    try:
        chosen = [entry for entry in entries(setup) if "sanitize" in entry.labels and entry.command]
    except (LeftOut, Failed) as reason:
        outcome.notes.append(f"no tests: {reason}")
        chosen = []
    short = setup.python("bench", "--library", os.path.join(setup.build, "libaxccl.so"), "--ranks", "2", "--sizes", "64K",
                         "--iterations", "1", "--rounds", "1")
    rows, failed = [], []
    for name in SANITIZERS:
        prefix = [tool, "--tool", name, "--error-exitcode", "99", "--target-processes", "all"]
        runs = [("collectives of 64 KiB", setup.run([*prefix, *short], 300, setup.environment()))]
        runs += [(entry.name, run_entry(setup, entry, prefix, 20)) for entry in chosen]
        for what, run in runs:
            rows.append([f"{name}: {what}", verdict(run), run.seconds])
            if verdict(run) not in ("passed", "skipped"):
                failed.append(f"{name}: {what} ({setup.keep(f'{name}-{what}'.replace(' ', '-'), run)})")
    outcome.tables.append(Table("compute-sanitizer", ["what", "result", "seconds"], rows))
    return finish(outcome, rows, failed)
