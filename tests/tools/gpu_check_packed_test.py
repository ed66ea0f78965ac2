#!/usr/bin/env python3
"""A folder of gpu-check --pack, run by its own copy of gpu-check on the software GPU: gpu_check_packed_test.py BUILD

Of its steps some short ones are left in the manifest, and others are added: one that hangs with a child, one that fails,
one that sees fake GPUs. A second call has to add what the first one did not do.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.path.abspath(sys.argv.pop(1))
MARK = f"gpu_check_packed_test {os.getpid()}"  # in the command line of the child that hangs
MIB = 1 << 20
SHORT = ["machine", "driver probe", "short benchmark of 2 ranks", "enqueue of 2 ranks", "cuda.cuda_channels_test.all",
         "cuda.cuda_windows_test.others"]
CLIENTS = ["torch", "jax"]
SLEEPS = "import time; time.sleep(3600)"
ORDER = ["short benchmark of 8 ranks", "cuda.grid_test.threads", "cuda.grid_test.processes", "memcheck",
         "benchmark of 8 ranks", "cuda.cuda_capture_test.all", "torch", "jax", "racecheck"]
HANGS = f"""import subprocess, sys
print('it hangs', flush=True)
subprocess.run([sys.executable, '-c', {SLEEPS!r}, {MARK!r}])
"""
FAKE = """import ctypes
cuda, device = ctypes.CDLL(None), ctypes.c_int()
assert cuda.cudaGetDeviceCount(ctypes.byref(device)) == 0 and device.value == 5, device
assert cuda.cudaSetDevice(4) == 0 and cuda.cudaGetDevice(ctypes.byref(device)) == 0 and device.value == 4, device
assert cuda.cudaSetDevice(5) == 101
"""


def python_step(name, script, seconds=60, **environment):
    return {"name": name, "seconds": seconds, "command": ["{python}", "-c", script], "environment": environment,
            "reads": "exit_status", "about": []}


def marked_processes():
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                command = file.read().split(b"\0")
        except OSError:
            continue
        if MARK.encode() in command:
            found.append(int(name))
    return found


class Packed(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder, self.out, self.empty = (os.path.join(scratch.name, name) for name in ("packed", "out", "empty"))
        os.makedirs(self.empty)

    def check(self, program, *arguments, path=None, status=0):
        env = {**os.environ, "OUT": self.out, **({"PATH": path} if path else {})}
        done = subprocess.run([sys.executable, program, *arguments], env=env, timeout=170, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def pack(self):
        return self.check(os.path.join(ROOT, "tools", "gpu-check"), "--pack", self.folder, "--software", "--build", BUILD,
                          "--max-bytes", "4K")

    def run_packed(self, *more, status=0):
        """Without any program in PATH: no compiler, CMake, CTest, MPI or debugger."""
        return self.check(os.path.join(self.folder, "gpu-check"), "--prebuilt", self.folder, "--software", "--build", BUILD,
                          *more, path=self.empty, status=status)

    def manifest(self):
        with open(os.path.join(self.folder, "manifest.json")) as file:
            return json.load(file)

    def store(self, manifest):
        with open(os.path.join(self.folder, "manifest.json"), "w") as file:
            json.dump(manifest, file)

    def states(self):
        with open(os.path.join(self.out, "gpu-check.json")) as file:
            return {part["name"]: part["state"] for part in json.load(file)["parts"]}

    def log(self, name):
        with tarfile.open(os.path.join(self.out, "gpu-check-logs.tgz")) as archive:
            return archive.extractfile(f"logs/{name}.log").read().decode()

    def test_the_folder(self):
        self.pack()
        size = sum(os.path.getsize(os.path.join(parent, name)) for parent, _, names in os.walk(self.folder) for name in names)
        self.assertLess(size, 48 * MIB)
        manifest = self.manifest()
        for step in manifest["steps"]:
            self.assertTrue(15 <= step["seconds"] <= 75, step)
            for word in step.get("command", []):
                self.assertFalse(word.startswith("/") or BUILD in word or ROOT in word, step)
                if word.startswith(("tests/", "perf/", "./")):
                    self.assertTrue(os.path.exists(os.path.join(self.folder, word)), step)
        names = [step["name"] for step in manifest["steps"]]
        self.assertEqual(names[:3], ["machine", "driver probe", "cuda.grid_test.one_thread"])
        self.assertEqual([name for name in names if "mapped" in name and name.endswith(".mapped")], [])
        order = [names.index(name) for name in ORDER]
        self.assertEqual(order, sorted(order))
        for name in CLIENTS:
            self.assertTrue(os.path.exists(os.path.join(self.folder, "clients", f"{name}_check.py")))
        # Other files are not removed.
        self.check(os.path.join(ROOT, "tools", "gpu-check"), "--pack", os.path.dirname(self.folder), "--software", "--build",
                   BUILD, status=1)

    def test_a_hang_a_failure_and_a_second_call(self):
        self.pack()
        manifest = self.manifest()
        manifest["environment"]["AXCCL_TIMEOUT"] = "100"  # a loaded machine is slow
        by_name = {step["name"]: step for step in manifest["steps"]}
        short = [by_name[name] for name in SHORT]
        count = os.path.join(self.folder, "count")
        counts = python_step("counts", f"open({count!r}, 'a').write('x')")
        fake = python_step("fake GPUs", FAKE, LD_PRELOAD="{folder}/lib/libfakegpus.so:libcudart.so.13", AXCCL_FAKE_GPUS="5")
        first = [*short[:3], python_step("hangs", HANGS, 2), counts, python_step("fails", "raise SystemExit('bad luck')"), fake]
        self.store({**manifest, "steps": first})
        self.run_packed("--budget", "120", status=1)
        states = self.states()
        self.assertEqual(states, {**{name: "passed" for name in [*SHORT[:3], "health after hangs", "counts", "fake GPUs"]},
                                  "hangs": "failed", "fails": "failed"})
        self.assertEqual(list(states).index("health after hangs"), list(states).index("hangs") + 1)
        self.assertEqual(marked_processes(), [])
        text = self.log("hangs")
        self.assertIn("it hangs", text)
        self.assertIn("autopsy of session", text)
        self.assertEqual(text.count("== process "), 2)  # its child, too
        self.assertIn(MARK, text)
        self.assertIn("State:", text)  # of /proc/PID/status
        self.assertIn("bad luck", self.log("fails"))
        with open(os.path.join(self.out, "gpu-check.md")) as file:
            report = file.read()
        self.assertIn("| hangs | **FAILED** |", report)
        self.assertIn("did not end within 2 s", report)
        self.assertIn("bad luck", report)

        # As on another machine, which has got the packed folder and the earlier report only.
        shutil.rmtree(os.path.join(self.folder, "results"))
        self.store({**manifest, "steps": first + short[3:]})
        text = self.run_packed("--add", "--budget", "1", status=1)
        self.assertIn("not run, as the budget is spent: 3 of 10 steps", text)
        self.assertEqual(self.states(), {**states, **dict.fromkeys(SHORT[3:], "not run")})
        self.store({**manifest, "steps": first + short[3:] + [by_name[name] for name in CLIENTS]})
        self.run_packed("--add", "--budget", "120", status=1)
        self.assertEqual(self.states(), {**states, **dict.fromkeys(SHORT[3:], "passed"), **dict.fromkeys(CLIENTS, "left out")})
        with open(count) as file:
            self.assertEqual(file.read(), "x")
        self.assertIn("it hangs", self.log("hangs"))
        for name in SHORT[4:]:
            self.assertIn("PASSED", self.log(name))

    def test_a_gpu_that_answers_no_more_ends_the_call(self):
        self.pack()
        manifest = self.manifest()
        manifest["health"] = python_step("health", "raise SystemExit('no answer')")
        steps = [manifest["steps"][0], python_step("hangs", HANGS, 1), python_step("comes later", "pass")]
        self.store({**manifest, "steps": steps})
        text = self.run_packed("--budget", "120", status=1)
        self.assertIn("not run, as the GPU did not answer any more after hangs: 1 of 3 steps", text)
        self.assertEqual(self.states(), {"machine": "passed", "hangs": "failed", "health after hangs": "failed",
                                         "comes later": "not run"})
        self.assertEqual(marked_processes(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
