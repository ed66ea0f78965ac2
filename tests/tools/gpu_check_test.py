#!/usr/bin/env python3
"""What gpu-check reads and computes, without a build or a GPU."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools"))

# Found by the line above.
from gpu_check import (bars, bench, build, clients, dimensions, enqueue, kernel_profile, machine, main, mps,  # noqa: E402
                       nccl_tests, overlap, pack, plan, probe, processes, ranks, report, resources, steps, suites, torch_tests)

OUTPUT = """# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
        1024           256     float     sum      -1  1134.30    0.00    0.00       0   537.77    0.00    0.00       0
        8192          2048     float    none      -1    36.25    0.23    0.45       {wrong}      N/A     N/A     N/A     N/A
# Out of bounds values : 0 OK
"""


def run_of(output, status=0):
    return steps.Run(["program"], status, output, 1.0, False)


class NcclTests(unittest.TestCase):
    def test_rows(self):
        rows = nccl_tests.parse_rows(OUTPUT.format(wrong=0))
        self.assertEqual([row[0] for row in rows], [1024, 8192])
        self.assertEqual(rows[0][1], (1134.30, 0.0, 0.0, 0))
        self.assertEqual(rows[0][2], (537.77, 0.0, 0.0, 0))
        self.assertEqual(rows[1][1], (36.25, 0.23, 0.45, 0))
        self.assertIsNone(rows[1][2])

    def test_problems(self):
        good = OUTPUT.format(wrong=0)
        self.assertEqual(nccl_tests.problem(run_of(good)), "")
        self.assertEqual(nccl_tests.problem(run_of(OUTPUT.format(wrong=3))), "3 wrong elements")
        self.assertEqual(nccl_tests.problem(run_of(good, 2)), "ended with status 2")
        self.assertEqual(nccl_tests.problem(run_of("")), "printed no results")
        self.assertIn("does not say", nccl_tests.problem(run_of(good.replace("0 OK", "7 FAILED"))))


PROFILE = """==PROF== Profiling "axccl_run": 0%....50%....100%
  axccl_run (64, 1, 1)x(512, 1, 1), Context 1, Stream 7, Device 0, CC 9.0
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    Elapsed Cycles                cycle    1,234,567
    Duration                         us       812.30
    Warp Cycles Per Issued Instruction                          cycle        24.10
    Block Limit Registers                                              block            2
    Registers Per Thread                                                            64
    ----------------------- ----------- ------------
    INF   Some advice about 3 things.
"""


class KernelProfile(unittest.TestCase):
    def test_figures(self):
        rows = kernel_profile.rows_of(PROFILE)
        self.assertEqual(rows, [["Elapsed Cycles", "cycle", "1,234,567"], ["Duration", "us", "812.30"],
                                ["Warp Cycles Per Issued Instruction", "cycle", "24.10"],
                                ["Block Limit Registers", "block", "2"], ["Registers Per Thread", "", "64"]])
        outcome = kernel_profile.outcome_of("profile", run_of(PROFILE))
        self.assertEqual((outcome.state, outcome.summary), ("passed", "Duration: 812.30 us"))

    def test_troubles(self):
        with self.assertRaisesRegex(steps.LeftOut, "counters"):
            kernel_profile.outcome_of("profile", run_of("==ERROR== ERR_NVGPUCTRPERM - ...", 1))
        for run in (run_of("==WARNING== No kernels were profiled."), run_of(PROFILE, 1)):
            with self.assertRaisesRegex(steps.Failed, "ncu ended with status"):
                kernel_profile.outcome_of("profile", run)

    def test_steps(self):
        found = plan.Plan([], [], 8, 64 << 20, False).profiles()
        self.assertEqual([step["name"] for step in found],
                         ["profile of all_reduce of 64 MiB", "profile of all_gather of 64 MiB", "profile of all_reduce of 64 B"])
        for step in found:
            self.assertEqual((step["command"][0], step["needs"]), ("ncu", "gpu"))


class Machine(unittest.TestCase):
    def test_answers_of_nvidia_smi(self):
        self.assertEqual(machine.rows_of(["name", "memory.total"], "GPU A, 80 MiB\nGPU B, 90 MiB\n"),
                         [["name", "GPU A", "GPU B"], ["memory.total", "80 MiB", "90 MiB"]])
        self.assertEqual(machine.rows_of(["name", "memory.total"], "GPU A\n"), [])


class DriverProbe(unittest.TestCase):
    FOUND = {"attributes": {}, "beside": [("cuStreamQuery", 0.1, False, None)], "before": [("cuMemAlloc", 1000.0, True, None)],
             "connections": "8", "queued": [7], "exchanged": {"number": False, "block": True},
             "latencies": {"device": [1.0] * 5}, "launches": [2.0, 9.0]}

    def test_calls_that_may_wait(self):
        outcome = probe.outcome_of(self.FOUND)
        self.assertEqual(outcome.state, "passed")
        self.assertEqual(outcome.summary, "wait for kernels: cuMemAlloc; 1 streams are queued")

    def test_calls_that_must_not(self):
        for row in (("cuStreamQuery", 1000.0, True, None), ("cuStreamQuery", 0.1, False, "cuStreamQuery returned 1")):
            outcome = probe.outcome_of({**self.FOUND, "beside": [row]})
            self.assertEqual(outcome.state, "failed")
            self.assertIn("fail: cuStreamQuery", outcome.summary)


    def test_memory_that_is_taken_for_other_memory(self):
        outcome = probe.outcome_of({**self.FOUND, "exchanged": {"number": False, "block": None}})
        self.assertEqual(outcome.state, "failed")
        self.assertIn("must not exchange memory", outcome.notes[-1])
        self.assertEqual(probe.outcome_of({**self.FOUND, "exchanged": {}}).state, "passed")


class Suites(unittest.TestCase):
    def entry(self, environment, labels=("cuda",)):
        properties = [{"name": "ENVIRONMENT", "value": environment}, {"name": "LABELS", "value": list(labels)}]
        text = json.dumps({"tests": [{"name": "one", "command": ["/b/one", "-x"], "properties": properties}]})
        return suites.parse_entries(text)[0]

    def test_the_software_gpu_is_taken_out(self):
        entry = self.entry(["AXCCL_TEST_DEVICE=cuda", "LD_LIBRARY_PATH=/b/softgpu:/b/dropin",
                            "LD_PRELOAD=/b/softgpu/libcuda.so.1", "SOFTGPU_DEVICES=4"])
        self.assertEqual(entry.own_environment(), {"AXCCL_TEST_DEVICE": "cuda", "LD_LIBRARY_PATH": "/b/dropin"})
        self.assertEqual(entry.command, ["/b/one", "-x"])
        self.assertFalse(entry.needs_software())

    def test_what_only_the_software_gpu_can_do(self):
        self.assertTrue(self.entry(["SOFTGPU_IPC=0"]).needs_software())
        self.assertTrue(self.entry([], ["cuda", "softgpu"]).needs_software())
        self.assertTrue(self.entry(["AXCCL_TEST_GPU_MEMORY=device"]).needs_software())
        self.assertFalse(self.entry(["SOFTGPU_RACES=1", "SOFTGPU_ARCH=80"]).needs_software())

    def test_ctest_is_asked_without_a_trace(self):
        """ctest replaces the log of the folder it is called for; tools/test reads there why tests were left out."""
        with tempfile.TemporaryDirectory() as build:
            with open(os.path.join(build, "CTestTestfile.cmake"), "w") as file:
                file.write('add_test(one "/bin/true")\nadd_test(other "/bin/true")\n')
            log = os.path.join(build, "Testing", "Temporary", "LastTest.log")
            os.makedirs(os.path.dirname(log))
            with open(log, "w") as file:
                file.write("of another run")
            found = suites.entries_of(steps.Setup(build, True, 1, build), "-R", "^one$")
            self.assertEqual([(entry.name, entry.command) for entry in found], [("one", ["/bin/true"])])
            with open(log) as file:
                self.assertEqual(file.read(), "of another run")


class Bench(unittest.TestCase):
    def test_floors(self):
        copied = {operation.name: operation.copied(4, 1000) for operation in bench.OPERATIONS}
        self.assertEqual(copied, {"all_reduce": 4000, "all_gather": 2500, "reduce_scatter": 2500, "alltoall": 4000})

    def test_ranks(self):
        self.assertEqual(bench.rank_counts(1), [2, 4, 8])
        self.assertEqual(bench.rank_counts(8), [8, 16, 32])


    def test_only_sizes_of_the_bars_are_figures(self):
        rows = [{"operation": "alltoall", "ranks": 2, "bytes": size << 20, "share_of_floor": 0.5} for size in (64, 256)]
        self.assertEqual([f.where for f in bench.large_figures(rows, False)], ["2 ranks, 256 MiB"])
        self.assertEqual(len(bench.large_figures(rows, True)), 2)


class FakeRanks:
    """Two ranks whose memory is Python's; the test sets the outputs."""

    def __init__(self, outputs):
        self.count, self.size, self.mine, self.inputs, self.outputs = 2, 64, [0, 1], [0, 1], outputs
        self.driver = self

    def allocate(self, rank, size):
        return None

    def use(self, rank):
        pass

    def upload(self, memory, content):
        pass

    def download(self, memory, size):
        return b"".join(word.to_bytes(4, sys.byteorder) for word in memory)


class Dimensions(unittest.TestCase):
    SIDE_BY_SIDE = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]  # rows of [2, 4] of two ranks

    def test_results_are_checked(self):
        right = dimensions.Matrix(FakeRanks([self.SIDE_BY_SIDE, self.SIDE_BY_SIDE]), "f32")
        self.assertEqual((right.rows, right.columns), (2, 4))
        right.check("dim 1", 1)
        with self.assertRaisesRegex(ranks.NcclError, "dim 0: row 1 of 4 of rank 0"):
            right.check("dim 0", 0)
        one_after_the_other = dimensions.Matrix(FakeRanks([list(range(16))] * 2), "bf16")
        one_after_the_other.check("dim 0", 0)
        wrong = self.SIDE_BY_SIDE[:-1] + [99]
        with self.assertRaisesRegex(ranks.NcclError, "dim 1: row 1 of 2 of rank 1"):
            dimensions.Matrix(FakeRanks([self.SIDE_BY_SIDE, wrong]), "f32").check("dim 1", 1)

    def test_figures(self):
        us = {dimensions.DIM_1: 10.0, dimensions.DIM_0: 8.0, dimensions.STRIDED_COPY: 30.0}
        found = dimensions.figures([{"type": "bf16", "ranks": 2, "bytes": 1 << 20, "us": us}])
        self.assertEqual([(figure.case, figure.value) for figure in found],
                         [("dim 1 to dim 0", 1.25), ("strided copies to dim 1", 3.0)])
        self.assertTrue({figure.case for figure in found} <= {bar.case for bar in bars.BARS})


class Enqueue(unittest.TestCase):
    def test_figures_are_of_bars(self):
        found = overlap.figures([(2, "ag_matmul", "copy", "bulk", 3.0, 0.5), (2, "ag_matmul", "copy", "pipeline", 2.0, 0.9)])
        self.assertEqual([(f.case, f.value, f.where) for f in found], [("overlap, copy", 0.9, "ag_matmul, 2 ranks")])
        found = enqueue.figures([(2, "group", 1.0), (8, "call", 3.0)])
        self.assertEqual([(figure.value, figure.where) for figure in found], [(1.0, "2 ranks"), (3.0, "8 ranks")])
        self.assertTrue({figure.case for figure in found} <= {bar.case for bar in bars.BARS})


class Processes(unittest.TestCase):
    def test_only_figures_of_mps_count(self):
        rows = [("all_reduce", "cuMemAlloc", processes.TURNS, 10.0, 100.0), ("all_reduce", "cuMemAlloc", processes.MPS, 10.0, 12.5),
                ("all_gather", "ncclMemAlloc", processes.MPS, 10.0, 10.0)]
        found = processes.figures(rows, 256 << 20)
        self.assertEqual(processes.figures(rows, 64 << 20), [])
        self.assertEqual([(figure.value, figure.where) for figure in found], [(0.8, "cuMemAlloc, 256 MiB"), (1.0, "ncclMemAlloc, 256 MiB")])
        self.assertTrue({figure.case for figure in found} <= {bar.case for bar in bars.BARS})

    def test_the_slowest_process_counts(self):
        rows = [[{"operation": "all_reduce", "us": us}, {"operation": "all_gather", "us": 5.0}] for us in (3.0, 4.0)]
        self.assertEqual(processes.slowest(rows), {"all_reduce": 4.0, "all_gather": 5.0})


class Mps(unittest.TestCase):
    """With a program in the daemon's place that records its commands."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.environ["PATH"]
        os.environ["PATH"] = self.folder.name + ":" + self.path
        self.addCleanup(lambda: os.environ.update(PATH=self.path))
        self.setup = steps.Setup("/nowhere", False, 1, self.folder.name)

    def control(self, on_start="", on_quit=""):
        path = os.path.join(self.folder.name, mps.CONTROL)
        with open(path, "w") as file:
            file.write(f"""#!/bin/bash
if [ "$1" = -d ]; then echo "start $CUDA_MPS_PIPE_DIRECTORY" >> {self.folder.name}/commands; {on_start}
else read word; echo "$word $CUDA_MPS_PIPE_DIRECTORY" >> {self.folder.name}/commands; {on_quit}
fi
""")
        os.chmod(path, 0o755)
        return mps.Mps(self.setup, os.path.join(self.folder.name, "mps"))

    def commands(self):
        with open(os.path.join(self.folder.name, "commands")) as file:
            return [line.split() for line in file]

    def test_a_daemon_of_our_own_is_ended_whatever_happens(self):
        service = self.control()
        with self.assertRaisesRegex(KeyError, "bad"), service:
            self.assertTrue(os.path.isdir(service.environment["CUDA_MPS_LOG_DIRECTORY"]))
            self.setup.deadline = time.monotonic() - 1  # the part's time is over
            raise KeyError("bad")
        pipe = os.path.join(self.folder.name, "mps", "pipe")
        self.assertEqual(self.commands(), [["start", pipe], ["quit", pipe]])

    def test_one_that_does_not_start_is_an_error(self):
        with self.assertRaisesRegex(steps.Failed, "status 3"), self.control(on_start="exit 3"):
            self.fail("not reached")
        self.assertEqual([words[0] for words in self.commands()], ["start", "quit"])

    def test_one_that_does_not_quit_is_killed(self):
        child = subprocess.Popen(["sleep", "60"])
        with self.control(on_start=f"echo {child.pid} > $CUDA_MPS_PIPE_DIRECTORY/{mps.CONTROL}.pid", on_quit="exit 1"):
            pass
        self.assertEqual(child.wait(timeout=30), -signal.SIGKILL)


class Resources(unittest.TestCase):
    OUTPUT = """57: -- sm_75: 64 registers, 368 bytes of stack, 29088 of shared memory, no spills
57: -- sm_90: 65 registers, 344 bytes of stack, 30112 of shared memory, 8 bytes of spill stores, 4 bytes of spill loads
-- sm_999: 40 registers
"""

    def test_lines_of_any_facts(self):
        found = resources.parse(self.OUTPUT)
        self.assertEqual(found[75], {"registers": 64, "stack": 368, "shared memory": 29088, "spills": 0})

    def test_spills(self):
        self.assertEqual(resources.spills("1: [  PASSED  ] 1 test.\n"), 0)
        self.assertEqual(resources.spills("sm_80: F has its registers on the stack within a loop\nsm_80: the kernel has "
                                          "registers on the stack\n"), 2)
        self.assertIsNone(resources.spills("No tests were found!!!"))

    def test_occupancy(self):
        found = resources.parse(self.OUTPUT)
        # Two blocks of 1024 threads; one block of 2048, as 65 registers are 72; not known.
        self.assertEqual([resources.occupancy(architecture, found[architecture]) for architecture in (75, 90, 999)],
                         [1.0, 0.25, None])
        self.assertEqual(resources.occupancy(80, {"registers": 32, "shared memory": 41 << 10}), 0.75)  # 4 x 42 KiB: too much

    def test_figures(self):
        found = resources.figures(resources.parse(self.OUTPUT), 0)
        self.assertEqual([figure.value for figure in found], [1.0, 0.25, 0])
        self.assertTrue({figure.case for figure in found} <= {bar.case for bar in bars.BARS})


class Clients(unittest.TestCase):
    def test_only_runs_on_this_library_count(self):
        self.assertEqual(clients.result_of(run_of("NCCL version 2.28.9+axccl"), False), "passed")
        self.assertEqual(clients.result_of(run_of("NCCL version 2.28.9"), False), "ran, but not on this library")
        self.assertEqual(clients.result_of(run_of(""), True), "passed")
        self.assertEqual(clients.result_of(run_of("+axccl", 1), False), "ended with status 1")


class TorchTests(unittest.TestCase):
    OUTPUT = """test_bad (__main__.One.test_bad) ... Started process 0
ERROR
test_fine (__main__.One.test_fine)
It has words. ... ok
test_skip (__main__.Two.test_skip) ... skipped 'no'
"""
    END = """======
ERROR: test_bad (__main__.One.test_bad)
------
Ran 3 tests in 27.249s

FAILED (errors=1, skipped=1)
"""

    def test_results(self):
        self.assertEqual(torch_tests.parse(self.OUTPUT + self.END), (3, 1, ["test_bad (__main__.One.test_bad)"], True))
        self.assertEqual(torch_tests.parse("Ran 2 tests in 1.0s\n\nOK\n"), (2, 0, [], True))

    def test_a_run_that_did_not_end(self):
        self.assertEqual(torch_tests.parse(self.OUTPUT), (3, 0, [], False))
        self.assertEqual(torch_tests.last_started(self.OUTPUT), "test_skip (__main__.Two.test_skip)")

    def test_without_a_source(self):
        setup = steps.Setup("/b", False, 1, "/tmp")
        with self.assertRaisesRegex(steps.LeftOut, "--torch-source"):
            torch_tests.check(setup, None, "python3", None)
        with self.assertRaisesRegex(steps.Failed, "there is no test/distributed"):
            torch_tests.check(setup, "/nowhere", "python3", None)


class Bars(unittest.TestCase):
    def rows(self, outcomes, software=False):
        return {row[0]: row[1:] for row in bars.table(outcomes, software).rows}

    def test_the_worst_figure_counts(self):
        share, latency = bars.BARS[0], next(bar for bar in bars.BARS if bar.case == "8 bytes in a graph")
        figures = [steps.Figure(share.case, 0.93, "2 ranks"), steps.Figure(share.case, 0.795, "8 ranks"),
                   steps.Figure(latency.case, 7.5, "8 ranks")]
        outcomes = [steps.Outcome("benchmark", figures=figures)]
        self.assertEqual(self.rows(outcomes)[share.text], ["0.795 (8 ranks, worst of 2)", ">= 0.8", "**no**"])
        self.assertEqual(self.rows(outcomes)[latency.text], ["7.5 us (8 ranks)", "<= 8 us", "yes"])
        self.assertIn("not known", self.rows(outcomes, True)[latency.text][2])

    def test_what_was_not_measured_says_why(self):
        text = bars.BARS[0].text
        self.assertIn("part benchmark was not run", self.rows([])[text][0])
        self.assertIn("was left out: no GPU", self.rows([steps.Outcome("benchmark", "left out", "no GPU")])[text][0])
        self.assertIn("has failed: bad", self.rows([steps.Outcome("benchmark", "failed", "bad\nvery")])[text][0])
        self.assertIn("do not fit", self.rows([steps.Outcome("benchmark", notes=["they do not fit"])])[text][0])

    def packed_row(self, case, outcomes):
        """Its row without the text, from the steps of a packed folder."""
        planned = [step["name"] for step in plan.Plan([], [], 8, 1 << 30, False).steps()]
        self.assertTrue({outcome.name for outcome in outcomes} <= set(planned))
        text = next(bar.text for bar in bars.BARS if bar.case == case)
        return next(row[1:] for row in bars.table(outcomes, False, planned).rows if row[0] == text)

    def test_a_bar_is_reached_in_all_steps_of_a_packed_folder_or_not_known(self):
        case = "floor of all_reduce"

        def passed(ranks, value=0.85):
            return steps.Outcome(f"benchmark of {ranks} ranks", figures=[steps.Figure(case, value, f"{ranks} ranks")])

        failed = steps.Outcome("benchmark of 8 ranks", "failed", "did not end within 75 s")
        self.assertEqual(self.packed_row(case, [passed(2), passed(4), passed(8)])[2], "yes")
        self.assertEqual(self.packed_row(case, [passed(2), passed(4), failed])[2],
                         "not known: step benchmark of 8 ranks has failed: did not end within 75 s")
        self.assertEqual(self.packed_row(case, [passed(2), passed(8)])[2], "not known: step benchmark of 4 ranks was not run")
        self.assertEqual(self.packed_row(case, [passed(2), passed(4), steps.Outcome("benchmark of 8 ranks")])[2],
                         "not known: step benchmark of 8 ranks has no figure of this case")
        self.assertEqual(self.packed_row(case, [passed(2, 0.1), failed])[2], "**no**")
        self.assertEqual(self.packed_row("8 bytes in a graph", [passed(2), failed])[0],
                         "not measured: step benchmark of 8 ranks has failed: did not end within 75 s")

    def test_steps_of_a_packed_folder_that_do_not_measure_a_case_do_not_count(self):
        def passed(pattern, engine):
            return steps.Outcome(f"overlap of 2 ranks, {pattern}, {engine}",
                                 figures=[steps.Figure("overlap, " + engine, 0.95, f"{pattern}, 2 ranks")])

        copies = [passed(pattern, "copy") for pattern, engines in overlap.PATTERNS.items() if "copy" in engines]
        self.assertEqual(self.packed_row("overlap, copy", copies)[2], "yes")
        self.assertIn("was not run", self.packed_row("overlap, kernel", copies)[0])
        latency = steps.Outcome("benchmark of 8 ranks", figures=[steps.Figure("8 bytes in a graph", 7.5, "8 ranks")])
        self.assertEqual(self.packed_row("8 bytes in a graph", [latency])[2], "yes")
        self.assertFalse(any("4 ranks" in bar.text for bar in bars.BARS))


class Steps(unittest.TestCase):
    def setUp(self):
        self.setup = steps.Setup("/nowhere", False, 1, tempfile.gettempdir())

    def test_sizes(self):
        self.assertEqual([steps.parse_size(text) for text in ("8", "64K", "1G")], [8, 65536, 1 << 30])
        self.assertEqual([steps.size_name(size) for size in (8, 65536, 3 << 20)], ["8 B", "64 KiB", "3 MiB"])

    def test_a_program_that_does_not_end_is_ended_with_its_children(self):
        started = time.monotonic()
        run = self.setup.run(["bash", "-c", "sleep 60 & wait"], 0.3)
        self.assertTrue(run.timed_out)
        self.assertFalse(run.ok)
        self.assertLess(time.monotonic() - started, 30)

    def test_a_hang_is_looked_into(self):
        run = self.setup.run([sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"], 3)
        self.assertIn("begun", run.output)
        self.assertIn("autopsy of session", run.autopsy)
        self.assertIn("State:", run.autopsy)

    def test_what_a_program_leaves_running_is_ended(self):
        run = self.setup.run(["bash", "-c", "sleep 60 & echo $!"], 30)
        self.assertTrue(run.ok)
        self.assertFalse(os.path.exists(f"/proc/{int(run.output)}/exe"))

    def test_versions(self):
        self.assertEqual(build.cmake_version("cmake version 3.25.1\n"), (3, 25))
        self.assertEqual(build.cmake_version("nonsense"), (0, 0))

    def test_reports_do_not_name_folders_of_the_machine(self):
        self.assertEqual(steps.shown(os.path.join(steps.ROOT, "build", "gpu-check", "a.log")), "build/gpu-check/a.log")
        self.assertEqual(steps.shown("/somewhere/else"), "else")

    def test_software_environment(self):
        setup = steps.Setup("/b", True, 3, "/tmp")
        env = setup.dropin_environment(MORE=1)
        self.assertTrue(env["LD_LIBRARY_PATH"].startswith("/b/dropin:/b/softgpu"))
        self.assertTrue(env["LD_PRELOAD"].startswith("/b/softgpu/libcuda.so.1"))
        self.assertEqual((env["SOFTGPU_DEVICES"], env["MORE"]), ("3", "1"))


class Pack(unittest.TestCase):
    def test_a_program_that_opens_files_of_the_build_is_refused(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"\0/home/me/build\0/home/me/build.txt\0")  # a search path for libraries, and another folder
            file.flush()
            pack.must_stand_alone(file.name, "/home/me/build")
            file.write(b"/home/me/build/tests/kernels.ptx\0more")
            file.flush()
            with self.assertRaisesRegex(steps.Failed, "names /home/me/build/tests/kernels.ptx, which only"):
                pack.must_stand_alone(file.name, "/home/me/build")


class Parts(unittest.TestCase):
    def test_a_failure_is_an_outcome(self):
        setup = steps.Setup("/b", True, 1, "/tmp")

        def fails(error):
            def part(_):
                raise error
            return part

        self.assertEqual(steps.run_part("p", fails(steps.LeftOut("no tool")), setup, 1).state, "left out")
        self.assertEqual(steps.run_part("p", fails(steps.Failed("bad")), setup, 1).summary, "bad")
        broken = steps.run_part("p", fails(KeyError("x")), setup, 1)
        self.assertEqual((broken.state, broken.summary), ("failed", "KeyError: 'x'"))

    def test_report(self):
        table = steps.Table("T", ["a", "b"], [[1.23456, None], [12345.6, "x|y"]])
        outcomes = [steps.Outcome("one", "passed", "fine", 2.0, ["a note"], [table]),
                    steps.Outcome("two", "failed", "line 1\nline 2")]
        bar_table = steps.Table("Bars", ["case"], [["a case"]])
        text = report.markdown("title", bar_table, outcomes)
        self.assertLess(text.index("a case"), text.index("| one |"))
        for expected in ("| one | passed | 2 | fine |", "| two | **FAILED** | 0 | line 1 |", "- a note", "| 1.23 | - |",
                         "| 12346 | x\\|y |", "line 1\nline 2"):
            self.assertIn(expected, text)
        with tempfile.TemporaryDirectory() as folder:
            paths = report.write(os.path.join(folder, "r"), "title", bar_table, outcomes)
            with open(paths[1]) as file:
                self.assertEqual(json.load(file)["parts"][1]["state"], "failed")

    def test_several_runs_make_one_report(self):
        figure = steps.Figure(bars.BARS[0].case, 0.9, "2 ranks")
        first = [steps.Outcome("machine"), steps.Outcome("jax", "failed", "bad"),
                 steps.Outcome("benchmark", figures=[figure], tables=[steps.Table("T", ["a"], [[1]])])]
        with tempfile.TemporaryDirectory() as folder:
            chosen = main.parse_arguments(["--out", os.path.join(folder, "r"), "--add"])
            self.assertEqual(report.read(chosen.out), [])
            main.write_report(chosen, [], first)
            self.assertEqual(report.read(chosen.out), first)
            main.write_report(chosen, report.read(chosen.out), [steps.Outcome("machine"), steps.Outcome("jax", "passed")])
            found = report.read(chosen.out)
        self.assertEqual([(o.name, o.state) for o in found], [("machine", "passed"), ("jax", "passed"), ("benchmark", "passed")])
        self.assertEqual(found[2].figures, [figure])

    def test_arguments(self):
        chosen = main.parse_arguments(["--software", "--parts", "tests", "--max-bytes", "4M"])
        self.assertEqual(bench.sizes_up_to(chosen.max_bytes), [16384, 262144, 1 << 20, 4 << 20])
        self.assertTrue(chosen.out.startswith(os.path.join(ROOT, "perf", "results", "gpu-check-")))
        self.assertEqual(chosen.build, os.path.join(ROOT, "build"))

    def test_a_folder_that_is_not_packed(self):
        with tempfile.TemporaryDirectory() as folder:
            for text, reason in ((None, "No such file"), ("{", "Expecting property name")):
                if text is not None:
                    with open(os.path.join(folder, "manifest.json"), "w") as file:
                        file.write(text)
                done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "gpu-check"), "--prebuilt", folder],
                                      capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr, f"^gpu-check: --prebuilt {folder}: .*{reason}.*; pack the folder with --pack")
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
