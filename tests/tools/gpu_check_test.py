#!/usr/bin/env python3
"""What gpu-check reads and computes, without a build or a GPU."""

import json
import os
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools"))

from gpu_check import bench, build, main, nccl_tests, report, steps, suites  # noqa: E402: found by the line above

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


class Bench(unittest.TestCase):
    def test_floors(self):
        copied = {operation.name: operation.copied(4, 1000) for operation in bench.OPERATIONS}
        self.assertEqual(copied, {"all_reduce": 4000, "all_gather": 2500, "reduce_scatter": 2500, "alltoall": 4000})

    def test_ranks(self):
        self.assertEqual(bench.rank_counts(1), [2, 4])
        self.assertEqual(bench.rank_counts(8), [8, 16, 32])


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

    def test_versions(self):
        self.assertEqual(build.cmake_version("cmake version 3.25.1\n"), (3, 25))
        self.assertEqual(build.cmake_version("nonsense"), (0, 0))

    def test_software_environment(self):
        setup = steps.Setup("/b", True, 3, "/tmp")
        env = setup.dropin_environment(MORE=1)
        self.assertTrue(env["LD_LIBRARY_PATH"].startswith("/b/dropin:/b/softgpu"))
        self.assertTrue(env["LD_PRELOAD"].startswith("/b/softgpu/libcuda.so.1"))
        self.assertEqual((env["SOFTGPU_DEVICES"], env["MORE"]), ("3", "1"))


class Parts(unittest.TestCase):
    def test_a_failure_is_an_outcome(self):
        setup = steps.Setup("/b", True, 1, "/tmp")

        def fails(error):
            def part(_):
                raise error
            return part

        self.assertEqual(main.run_part("p", fails(steps.LeftOut("no tool")), setup, 1).state, "left out")
        self.assertEqual(main.run_part("p", fails(steps.Failed("bad")), setup, 1).summary, "bad")
        broken = main.run_part("p", fails(KeyError("x")), setup, 1)
        self.assertEqual((broken.state, broken.summary), ("failed", "KeyError: 'x'"))

    def test_report(self):
        table = steps.Table("T", ["a", "b"], [[1.23456, None], [12345.6, "x|y"]])
        outcomes = [steps.Outcome("one", "passed", "fine", 2.0, ["a note"], [table]),
                    steps.Outcome("two", "failed", "line 1\nline 2")]
        text = report.markdown("title", outcomes)
        for expected in ("| one | passed | 2 | fine |", "| two | **FAILED** | 0 | line 1 |", "- a note", "| 1.23 | - |",
                         "| 12346 | x\\|y |", "line 1\nline 2"):
            self.assertIn(expected, text)
        with tempfile.TemporaryDirectory() as folder:
            paths = report.write(os.path.join(folder, "r"), "title", outcomes)
            with open(paths[1]) as file:
                self.assertEqual(json.load(file)["parts"][1]["state"], "failed")

    def test_arguments(self):
        chosen = main.parse_arguments(["--software", "--parts", "tests", "--max-bytes", "4M"])
        self.assertEqual(main.bench_sizes(chosen), [16384, 262144, 1 << 20, 4 << 20])
        self.assertTrue(chosen.out.startswith(os.path.join(ROOT, "perf", "results", "gpu-check-")))
        self.assertEqual(chosen.build, os.path.join(ROOT, "build"))


if __name__ == "__main__":
    unittest.main()
