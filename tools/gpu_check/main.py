"""Checks and measures AxCCL on a machine with GPUs, without a network, and writes one report.

It begins with the requirements, what was measured, and whether each requirement is met. Parts, in this order:

  machine      its description
  driver probe which calls of the driver wait for kernels, and how long accesses and launches take
  build        the library and the perf programs and, where GoogleTest is installed, the tests, in build/gpu
  tests        the tests with the CTest label cuda, on the real driver
  sanitizers   compute-sanitizer's memcheck, racecheck and synccheck
  nccl-tests   with --nccl-tests DIR
  torch, jax   collectives and training, where they are installed
  torch-tests  PyTorch's own tests of its NCCL backend, with --torch-source DIR
  benchmark    collectives against a device-to-device copy, and 8-byte latency; ranks share GPUs
  dimensions   all_gather along dimension 1 against dimension 0, and against an ordinary one followed by copies
  enqueue      the host's part of an operation
  overlap      collectives beside matrix products, by calls and by pipelines
  processes    two processes that share a GPU, also under this run's own MPS daemon
  resources    registers, spills and occupancy of the kernel

Every part has a time limit, and a part that cannot run reports why. A failed part does not stop the others, except build,
without which none can run. The report is written after each part. If one run would take too long, several make one
report: --parts machine,build,tests --out FILE, then --parts benchmark --add --out FILE, and so on.

A machine with little time, or with nothing but Python and a driver, takes a folder that another machine has packed:

  tools/gpu-check --pack FOLDER --build BUILD [--nccl-tests BUILD_OF_THEM]
  FOLDER/gpu-check --prebuilt FOLDER --budget 540 --out RESULTS

The first command packs the library, tests, and programs that measure, with what they need. The second runs them as steps
with limits of seconds, beginning with what tells whether anything works. A program that hangs is looked into and killed.
Report and logs are written after every step. With --add, another call runs the steps that an earlier one did not.

--software runs the same on the software GPU of tools/softgpu, as far as possible: it tests this tool, not the library.
"""

import argparse
import datetime
import os
import shutil
import signal
import sys
import tempfile

from gpu_check import (bars, bench, build, clients, dimensions, enqueue, machine, nccl_tests, overlap, pack, prebuilt, probe,
                       processes, report, resources, steps, suites, torch_tests)

# The parts in order, and their time limits in seconds.
LIMITS = {"machine": 120, "driver probe": 120, "build": 3600, "tests": 1800, "sanitizers": 1800, "nccl-tests": 3600, "torch": 900, "jax": 900,
          "torch-tests": 3600, "benchmark": 1800, "dimensions": 900, "enqueue": 300, "overlap": 600,
          "processes": 900, "resources": 120}
PARTS = list(LIMITS)


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(prog="tools/gpu-check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated (%(default)s); machine always runs")
    parser.add_argument("--build", help="build folder (build/gpu; with --software or --pack build)")
    parser.add_argument("--out", help="the report, without .md and .json (perf/results/gpu-check-<date>)")
    parser.add_argument("--add", action="store_true", help="to the report that is there: parts that are not run now stay in it")
    parser.add_argument("--nccl-tests", metavar="DIR", help="checkout of nccl-tests, which is built in a temporary folder")
    parser.add_argument("--nccl-home", metavar="DIR", help="has include/nccl.h and nccl_device.h for nccl-tests; without it "
                        "they are built as for NCCL 2.27, with this library's nccl.h")
    parser.add_argument("--programs", default=",".join(nccl_tests.PROGRAMS), help="of nccl-tests (%(default)s)")
    parser.add_argument("--python", default=sys.executable, help="has torch and jax (%(default)s)")
    parser.add_argument("--torch-source", metavar="DIR", help="checkout of PyTorch of the version installed; its "
                        f"{torch_tests.FILE} is run")
    parser.add_argument("--torch-tests", metavar="PATTERN", help="those whose names match, as unittest's -k has it (all)")
    parser.add_argument("--max-bytes", default=None, help="largest size of nccl-tests and the benchmark (1G; with --software "
                        "64K)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="of the builds (%(default)s)")
    parser.add_argument("--time-factor", type=float, default=1, help="multiplies the time limits of the parts (%(default)s)")
    parser.add_argument("--pack", metavar="FOLDER", help="packs what is in --build, and the programs in --nccl-tests, a build")
    parser.add_argument("--prebuilt", metavar="FOLDER", help="runs what --pack has packed; --out is a folder then ($OUT, or "
                        "results in FOLDER)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", default=540, help="of the whole call with --prebuilt "
                        "(%(default)s)")
    parser.add_argument("--fake-gpus", type=int, metavar="N", default=8, help="with --pack: nccl-tests see N devices that are "
                        "all the first one, so N ranks share it without MPI (%(default)s)")
    parser.add_argument("--software", action="store_true", help="on the software GPU")
    parser.add_argument("--devices", type=int, default=1, help="of the software GPU (%(default)s)")
    chosen = parser.parse_args(arguments)
    chosen.parts = chosen.parts.split(",")
    unknown = [part for part in chosen.parts if part not in PARTS]
    if unknown:
        parser.error(f"--parts: there is no {', '.join(unknown)}; choose of {', '.join(PARTS)}")
    unknown = [program for program in chosen.programs.split(",") if program not in nccl_tests.PROGRAMS]
    if unknown:
        parser.error(f"--programs: there is no {', '.join(unknown)}; choose of {', '.join(nccl_tests.PROGRAMS)}")
    chosen.programs = chosen.programs.split(",")
    chosen.max_bytes = steps.parse_size(chosen.max_bytes or ("64K" if chosen.software else "1G"))
    chosen.build = os.path.abspath(chosen.build or os.path.join(steps.ROOT, "build" if chosen.software or chosen.pack else "build/gpu"))
    stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H%M")
    out = os.path.join(steps.ROOT, "perf", "results", f"gpu-check-{stamp}")
    if chosen.prebuilt:
        out = os.environ.get("OUT") or os.path.join(chosen.prebuilt, "results")
    chosen.out = os.path.abspath(chosen.out or out)
    return chosen


def build_part(setup, chosen):
    if not setup.software:
        return build.build(setup, chosen.jobs)
    for library in ("libaxccl.so", "softgpu/libcuda.so.1", "softgpu/libcudart.so.13"):
        if not os.path.exists(os.path.join(setup.build, library)):
            raise steps.Failed(f"there is no {os.path.join(setup.build, library)}; build the targets axccl, softgpu_cuda and "
                               "softgpu_cudart13")
    return steps.Outcome("build", summary=f"as it is in {steps.shown(setup.build)}")


def functions(chosen):
    repeats = (1, 1) if chosen.software else (10, 7)  # iterations and rounds
    return {
        "machine": machine.describe,
        "driver probe": probe.check,
        "build": lambda setup: build_part(setup, chosen),
        "tests": suites.tests,
        "sanitizers": suites.sanitizers,
        "nccl-tests": lambda setup: nccl_tests.check(setup, chosen.nccl_tests, chosen.nccl_home, chosen.max_bytes,
                                                     chosen.programs, chosen.jobs),
        "torch": lambda setup: clients.check(setup, "torch", chosen.python),
        "torch-tests": lambda setup: torch_tests.check(setup, chosen.torch_source, chosen.python, chosen.torch_tests),
        "jax": lambda setup: clients.check(setup, "jax", chosen.python),
        "benchmark": lambda setup: bench.benchmark(setup, bench.sizes_up_to(chosen.max_bytes), repeats),
        "dimensions": lambda setup: dimensions.check(setup, min(dimensions.SIZE, chosen.max_bytes), repeats, chosen.python),
        "enqueue": lambda setup: enqueue.check(setup, (5, 3) if chosen.software else (20, 101)),
        "overlap": overlap.check,
        "processes": lambda setup: processes.check(setup, min(processes.SIZE, chosen.max_bytes), repeats),
        "resources": resources.check,
    }


def blocked(name, outcomes):
    """Whether a part that all others need has failed."""
    return name not in ("machine", "build") and any(o.state == "failed" for o in outcomes if o.name in ("machine", "build"))


def write_report(chosen, earlier, outcomes):
    """The outcomes, including those that an earlier run has stored, in the order of PARTS."""
    by_name = {outcome.name: outcome for outcome in earlier + outcomes}
    every = [by_name[name] for name in PARTS if name in by_name]
    return report.write(chosen.out, report.title(chosen.software), bars.table(every, chosen.software), every)


def run_prebuilt(chosen):
    scratch = tempfile.mkdtemp(prefix="axccl-gpu-check-")
    try:
        passed = prebuilt.Prebuilt(chosen, functions(chosen), scratch).run()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("report: " + ", ".join(os.path.relpath(os.path.join(chosen.out, name)) for name in prebuilt.FILES))
    return 0 if passed else 1


def main():
    chosen = parse_arguments()
    # As an exception, so that programs under way are ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if chosen.pack:
            print(pack.pack(chosen))
            return 0
        return run_prebuilt(chosen) if chosen.prebuilt else run_parts(chosen)
    except (steps.Failed, steps.LeftOut) as reason:
        print(f"gpu-check: {reason}", file=sys.stderr)
        return 1


def run_parts(chosen):
    scratch = tempfile.mkdtemp(prefix="axccl-gpu-check-")
    setup = steps.Setup(chosen.build, chosen.software, chosen.devices, scratch)
    os.makedirs(os.path.dirname(chosen.out), exist_ok=True)
    earlier, outcomes = report.read(chosen.out) if chosen.add else [], []
    try:
        for name in PARTS:
            if name not in chosen.parts and name != "machine":
                continue
            if blocked(name, outcomes):
                outcome = steps.Outcome(name, "left out", "machine or build has failed")
            else:
                outcome = steps.run_part(name, functions(chosen)[name], setup, LIMITS[name] * chosen.time_factor)
            outcomes.append(outcome)
            print(f"{name}: {outcome.state} ({outcome.seconds:.0f} s) {outcome.summary}", flush=True)
            paths = write_report(chosen, earlier, outcomes)  # now, because the run may be interrupted
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("report: " + ", ".join(os.path.relpath(path) for path in paths))
    return 1 if any(o.state == "failed" for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
