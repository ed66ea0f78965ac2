"""nccl-tests, built outside of the repository and run with this library in NCCL's place."""

import os
import re
import shutil
import subprocess

from gpu_check.children import find_tool
from gpu_check.steps import ROOT, Failed, LeftOut, Outcome, Table, size_name

PROGRAMS = ["all_reduce", "all_gather", "broadcast", "reduce_scatter", "reduce", "alltoall", "alltoallv", "scatter", "gather",
            "sendrecv", "hypercube"]
REDUCING = ["all_reduce", "reduce_scatter", "reduce"]
PTX_ARCHITECTURE = "75"  # of the software GPU
# For headers of 2.28 and later, nccl-tests needs nccl_device.h, which this library does not have.
SHIM = """#include "{header}"
#undef NCCL_VERSION_CODE
#define NCCL_VERSION_CODE 22703
"""
# Allows more processes than cores, and root. Other MPIs' mpirun would refuse options for this.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1, "OMPI_MCA_rmaps_base_oversubscribe": 1,
            "PRTE_ALLOW_RUN_AS_ROOT": 1, "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": 1,
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def parse_rows(text):
    """Parses a program's output: (bytes, (us, algbw, busbw, wrong) out of place, the same in place or None)."""
    rows = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 10 or not words[0].isdigit() or not words[1].isdigit():
            continue
        rows.append((int(words[0]), parse_result(words[-8:-4]), parse_result(words[-4:])))
    return rows


def parse_result(words):
    if len(words) != 4 or words[0] == "N/A":
        return None
    return float(words[0]), float(words[1]), float(words[2]), None if words[3] == "N/A" else int(float(words[3]))


def problem(run):
    """The problem with a run of a program, or nothing."""
    if not run.ok:
        return run.how()
    rows = parse_rows(run.output)
    if not rows:
        return "printed no results"
    wrong = sum(result[3] or 0 for row in rows for result in row[1:] if result is not None)
    if wrong:
        return f"{wrong} wrong elements"
    if not re.search(r"Out of bounds values : 0 OK", run.output):
        return "does not say that all values are right"
    return ""


def mpi_flags():
    """-I, -L and -l of the MPI installed, or nothing."""
    compiler = shutil.which("mpicxx")
    if compiler is None or shutil.which("mpirun") is None:
        return []
    for option in ("--showme", "-show"):  # Open MPI's and MPICH's
        done = subprocess.run([compiler, option], capture_output=True, text=True, timeout=20)
        if done.returncode == 0:
            return [word for word in done.stdout.split() if word[:2] in ("-I", "-L")]
    return []


def make_home(setup, nccl_home):
    """A folder with include/nccl.h and lib/libnccl.so as nccl-tests expects it: that header, our library."""
    home = os.path.join(setup.scratch, "nccl")
    os.makedirs(os.path.join(home, "lib"), exist_ok=True)
    library = os.path.join(setup.build, "dropin")
    for name in ("libnccl.so", "libnccl.so.2"):
        os.symlink(os.path.join(library, name), os.path.join(home, "lib", name))
    if nccl_home:
        os.symlink(os.path.join(os.path.abspath(nccl_home), "include"), os.path.join(home, "include"))
        return home
    os.makedirs(os.path.join(home, "include"))
    with open(os.path.join(home, "include", "nccl.h"), "w") as file:
        file.write(SHIM.format(header=os.path.join(ROOT, "include", "nccl.h")))
    return home


def architecture(setup):
    if setup.software:
        return f"-gencode=arch=compute_{PTX_ARCHITECTURE},code=compute_{PTX_ARCHITECTURE}"
    found = sorted({gpu["capability"].replace(".", "") for gpu in setup.gpus})
    return " ".join(f"-gencode=arch=compute_{cc},code=sm_{cc}" for cc in found)


def build(setup, source, nccl_home, programs, mpi, jobs):
    """Builds in a copy of the source; returns the folder with the programs."""
    copy = os.path.join(setup.scratch, "nccl-tests")
    if not os.path.exists(os.path.join(source, "src", "common.cu")):
        raise Failed(f"--nccl-tests {source}: there is no src/common.cu; give the folder of a checkout of nccl-tests")
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("build", ".git"))
    nvcc = find_tool("nvcc")
    if nvcc is None:
        raise LeftOut("there is no nvcc")
    folder = os.path.join(setup.scratch, "nccl-tests-build")
    command = ["make", "-C", os.path.join(copy, "src"), f"-j{jobs}", f"NCCL_HOME={make_home(setup, nccl_home)}",
               f"CUDA_HOME={os.path.dirname(os.path.dirname(nvcc))}", f"BUILDDIR={folder}", "CUDARTLIB=cudart",
               f"NVCC_GENCODE={architecture(setup)}"]
    env = dict(os.environ)
    if mpi:
        includes = [flag[2:] for flag in mpi if flag.startswith("-I")]
        command += ["MPI=1", f"MPI_HOME={os.path.dirname(includes[0]) if includes else '/usr'}"]
        env["NVCC_APPEND_FLAGS"] = " ".join(mpi)
    command += [os.path.join(folder, program + "_perf") for program in programs]
    run = setup.run(command, 1800, env)
    log = setup.keep("nccl-tests-build", run)
    setup.must(f"building nccl-tests ({log})", run)
    return folder


def launches(gpus, mpi):
    """(name, command prefix, arguments, environment): a rank on each GPU, and processes that share the first."""
    found = []
    if gpus > 1 or not mpi:
        found.append((f"{gpus} GPUs, 1 process", [], ["-g", str(gpus)], {}))
    if mpi:
        for ranks in (2, 4):
            found.append((f"{ranks} processes on a GPU", ["mpirun", "-np", str(ranks)], [],
                          {"NCCL_TESTS_DEVICE": "0", **OPEN_MPI}))
    return found


def cases(program, sizes, software):
    """Arguments of the runs of a program: sizes; and all types and operators at one size."""
    iterations = ["-n", "1", "-w", "1"] if software else ["-n", "20", "-w", "5"]
    found = [["-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", "8", *iterations]]
    if program in REDUCING and not software:
        found.append(["-b", "1M", "-e", "1M", "-d", "all", "-o", "all", "-n", "2", "-w", "1"])
    return found


def check(setup, source, nccl_home, max_bytes, programs, jobs):
    """The part."""
    if not source:
        raise LeftOut("no source: pass --nccl-tests DIR (a checkout of github.com/NVIDIA/nccl-tests)")
    outcome = Outcome("nccl-tests")
    mpi = mpi_flags()
    if not mpi:
        outcome.notes.append("no mpicxx and mpirun: one process only, so ranks do not share a GPU here")
    folder = build(setup, source, nccl_home, programs, mpi, jobs)
    rows, failed, total = [], [], 0
    for name, front, arguments, more in launches(len(setup.gpus), mpi):
        for program in programs:
            for i, options in enumerate(cases(program, (8, max_bytes), setup.software)):
                run = setup.run([*front, os.path.join(folder, program + "_perf"), *arguments, *options], 300,
                                setup.dropin_environment(**more))
                log = setup.keep(f"{program}-{name}-{i}".replace(" ", "-").replace(",", ""), run)
                total += 1
                found = parse_rows(run.output)
                largest = found[-1] if found else None
                rows.append([program, name, " ".join(options), problem(run) or "passed",
                             size_name(largest[0]) if largest else None, largest[1][0] if largest and largest[1] else None,
                             largest[1][2] if largest and largest[1] else None])
                if problem(run):
                    failed.append(f"{program}, {name}: {problem(run)} ({log})")
    outcome.tables.append(Table("nccl-tests", ["program", "ranks", "options", "result", "largest", "us", "busbw GB/s"], rows))
    outcome.summary = f"{total - len(failed)} of {total} runs passed"
    if failed:
        outcome.state = "failed"
        outcome.notes.append("failed: " + "; ".join(failed))
    return outcome
