"""The steps of a packed folder, in the order of what they tell: whether it works, how fast it is, what else holds.

A step is a dictionary: `name`; `seconds`, its limit; either `part`, one of gpu-check's own, or `command` with `environment`
and `reads`, the function of readers.py that judges it; `about`, what that function has to know; `needs`: "gpu" if the
software GPU will not do. Paths in commands are relative to the folder; `{python}`, `{scratch}` and
`{folder}` are replaced.
"""

import os
import re

from gpu_check import bench, kernel_profile, nccl_tests, overlap, probe
from gpu_check.steps import size_name

LIBRARY = "./libaxccl.so.0"
FAKE_GPUS = "lib/libfakegpus.so"
TESTS, NCCL_TESTS = "tests", "nccl-tests"  # folders
LONGEST, SHORTEST = 75, 15  # seconds
# A hang ends as an error where the library notices it, and ranks that are threads each need a queue of the device.
ENVIRONMENT = {"AXCCL_TIMEOUT": "15", "CUDA_DEVICE_MAX_CONNECTIONS": "32", "AXCCL_CACHE_DIR": "{scratch}/cache",
               "PYTHONUNBUFFERED": "1"}
# Tests by what they tell. Those that no pattern names come last.
ONE_LAUNCH = [r"grid_test\.one_thread$", r"view_test\.one_thread$"]
THREADS_AND_PROCESSES = [r"grid_test\.threads$", r"grid_test\.processes$"]
FIRST_OF_THE_REST = [r"capture_test\.all$", r"cuda_failures_test\.all$", r"deadline", r"lifecycle_test\.all$",
                     r"windows_test", r"copied_calls_test", r"\.all$"]
# They run another program of the build, or expect that there is no driver.
NOT_PACKED = ["program_gpu_replay_test", "cuda.no_driver"]


def command_step(name, seconds, command, reads, about=(), needs=None, **environment):
    step = {"name": name, "seconds": seconds, "command": [str(word) for word in command],
            "environment": {key: str(value) for key, value in environment.items()}, "reads": reads, "about": list(about)}
    return {**step, "needs": needs} if needs else step


def module(name, *arguments):
    """Runs a module of this package, which the folder has a copy of."""
    return ["{python}", "-B", "-m", f"gpu_check.{name}", *arguments]


def test_step(entry):
    seconds = min(max(int(entry.seconds) // 2, SHORTEST), 60)
    environment = {name: value for name, value in entry.own_environment().items() if not name.startswith("LD_")}
    return command_step(entry.name, seconds, [f"{TESTS}/{os.path.basename(entry.command[0])}", *entry.command[1:]], "test",
                        **environment)


def packable(entries, build):
    """The tests that run anywhere: their commands name nothing of this machine but the program."""
    return [entry for entry in entries if entry.command and entry.name not in NOT_PACKED and not entry.needs_software()
            and entry.command[0].startswith(os.path.join(build, "tests", ""))
            and not any(word.startswith("/") for word in entry.command[1:])]


def matching(entries, patterns):
    return [entry for pattern in patterns for entry in entries if re.search(pattern, entry.name)]


def without(entries, taken):
    names = {entry.name for entry in taken}
    return [entry for entry in entries if entry.name not in names]


def unique(entries):
    return list({entry.name: entry for entry in entries}.values())


class Plan:
    """`tests`: entries of CTest. `nccl`: the programs of nccl-tests that there are."""

    def __init__(self, tests, nccl, fake_gpus, max_bytes, software):
        self.tests, self.nccl, self.fake_gpus, self.max_bytes, self.software = tests, nccl, fake_gpus, max_bytes, software

    def bench(self, ranks, sizes, repeats, seconds, name=None):
        iterations, rounds = (1, 1) if self.software else repeats
        return command_step(name or f"benchmark of {ranks} ranks", seconds, module(
            "bench", "--library", LIBRARY, "--ranks", ranks, "--sizes", ",".join(map(str, sizes)),
            "--iterations", iterations, "--rounds", rounds), "bench")

    def nccl_test(self, program, ranks, seconds, most, *options, name=None):
        repeats = ["-n", "1", "-w", "1"] if self.software else ["-n", "20", "-w", "3"]
        return command_step(
            name or f"nccl-tests {program} of {ranks} ranks", seconds,
            [f"{NCCL_TESTS}/{program}_perf", "-g", ranks, *(options or ["-b", 8, "-e", min(most, self.max_bytes), "-f", 8]),
             *repeats], "nccl_test", LD_PRELOAD="{folder}/" + FAKE_GPUS, AXCCL_FAKE_GPUS=ranks)

    def sanitizer(self, tool, ranks=2):
        return command_step(tool, 60, [
            "compute-sanitizer", "--tool", tool, "--error-exitcode", 99, "--target-processes", "all",
            *module("bench", "--library", LIBRARY, "--ranks", ranks, "--sizes", "64K", "--iterations", 1, "--rounds", 1)],
            "exit_status", needs="gpu", AXCCL_TIMEOUT=60)

    def profiles(self):
        return [command_step(f"profile of {operation} of {size_name(size)}", LONGEST, kernel_profile.command(module(
            "bench", "--library", LIBRARY, "--ranks", 8, "--operations", operation, "--sizes", size, "--iterations", 5,
            "--rounds", 1)), "profile", needs="gpu", AXCCL_TIMEOUT=60, **kernel_profile.ENVIRONMENT) for operation, size in kernel_profile.CASES]

    def works(self):
        short = [size for size in (64, 4 << 10, 64 << 10, 1 << 20, 64 << 20) if size <= self.max_bytes]
        found = [{"name": "machine", "seconds": 60, "part": "machine"},
                 command_step("driver probe", 45, probe.command(self.software, module("probe")), "probe")]
        found += map(test_step, matching(self.tests, ONE_LAUNCH))
        found += [self.bench(ranks, short, (10, 3), 40, f"short benchmark of {ranks} ranks") for ranks in (2, 8)]
        if "all_reduce" in self.nccl:
            found += [self.nccl_test("all_reduce", ranks, 40, 64 << 20, name=f"first nccl-tests all_reduce of {ranks} ranks")
                      for ranks in sorted({2, self.fake_gpus})]
        found += map(test_step, matching(self.tests, THREADS_AND_PROCESSES))
        return [*found, self.sanitizer("memcheck")]

    def speed(self):
        found = [self.bench(ranks, bench.sizes_up_to(self.max_bytes), (10, 5), LONGEST) for ranks in (2, 4, 8)]
        operations, rounds = (5, 3) if self.software else (20, 101)
        found += [command_step(f"enqueue of {ranks} ranks", 20, [
            "perf/enqueue_perf", "-g", ranks, "-n", operations, "-N", rounds, "-J", "{scratch}/" + f"enqueue-{ranks}.json"],
            "enqueue", [ranks, f"enqueue-{ranks}.json"], AXCCL_DEVICE="cuda") for ranks in (2, 8)]
        found += [self.nccl_test(program, self.fake_gpus, 25, 256 << 20) for program in self.nccl]
        if "all_reduce" in self.nccl and not self.software:
            found.append(self.nccl_test("all_reduce", 2, 40, 0, "-b", "1M", "-e", "1M", "-d", "all", "-o", "all",
                                        name="nccl-tests all_reduce, all types and operators"))
        size = min(256 << 20, self.max_bytes)
        found += [command_step(f"dimensions of {ranks} ranks", 60, module(
            "dimensions", "--library", LIBRARY, "--ranks", ranks, "--sizes", size, "--iterations", 1 if self.software else 5,
            "--rounds", 3, *(["--without-torch"] if self.software else [])), "dimensions") for ranks in (2, 8)]
        for pattern, engines in overlap.PATTERNS.items():
            for engine in engines:
                file = f"overlap-2-{pattern}-{engine}.json"
                found.append(command_step(f"overlap of 2 ranks, {pattern}, {engine}", 30, overlap.command(
                    "perf/overlap_perf", 2, pattern, engine, self.software, "{scratch}/" + file), "overlap",
                    [2, pattern, engine, file]))
        return [*found, *self.profiles(), {"name": "processes", "seconds": LONGEST, "part": "processes"}]

    def steps(self):
        rest = without(self.tests, matching(self.tests, ONE_LAUNCH + THREADS_AND_PROCESSES))
        ordered = unique(matching(rest, FIRST_OF_THE_REST) + rest)
        clients = [{"name": name, "seconds": LONGEST, "part": name} for name in ("torch", "jax")]
        return [*self.works(), *self.speed(), *map(test_step, ordered), *clients, self.sanitizer("racecheck"),
                self.sanitizer("synccheck")]

    def health(self):
        """Tells whether the GPU still answers: makes a context, allocates, fills and reads memory, launches a kernel."""
        return command_step("health", 30, module("bench", "--library", LIBRARY, "--ranks", 2, "--sizes", 64, "--operations",
                                                 "all_reduce", "--iterations", 1, "--rounds", 1), "exit_status")


def programs(directory):
    """The programs of nccl-tests in a folder that holds a build of it, and where they are."""
    if not directory:
        return []
    for folder in (directory, os.path.join(directory, "build")):
        found = [name for name in nccl_tests.PROGRAMS if os.path.exists(os.path.join(folder, name + "_perf"))]
        if found:
            return [(name, os.path.join(folder, name + "_perf")) for name in found]
    return []
