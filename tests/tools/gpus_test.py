"""axccl-info names GPUs where they are: gpus_test.py AXCCL_INFO SOFTGPU_FOLDER"""
import json
import os
import subprocess
import sys
import unittest

INFO, SOFTGPU = sys.argv.pop(1), sys.argv.pop(1)


def run(*arguments, **variables):
    done = subprocess.run([INFO, *arguments], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Gpus(unittest.TestCase):
    def test_names_those_of_the_driver(self):
        software = {"LD_LIBRARY_PATH": SOFTGPU, "SOFTGPU_DEVICES": "2", "SOFTGPU_ARCH": "75", "AXCCL_DEVICE": "host"}
        gpus = json.loads(run("--json", **software))["gpus"]
        self.assertEqual([gpu["compute_capability"] for gpu in gpus], ["7.5", "7.5"])
        lines = [line for line in run("--ranks", "2", **software).splitlines() if line.startswith("GPU")]
        self.assertEqual(len(lines), 2)
        for index, (gpu, line) in enumerate(zip(gpus, lines)):
            self.assertEqual(set(gpu), {"name", "address", "bytes", "compute_capability"})
            self.assertRegex(gpu["address"], r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
            self.assertGreater(gpu["bytes"], 1 << 20)
            self.assertEqual(line.split()[:2], ["GPU", str(index)])
            for part in (gpu["name"], gpu["address"], f"compute capability {gpu['compute_capability']}"):
                self.assertIn(part, line)
        self.assertNotEqual(gpus[0]["address"], gpus[1]["address"])

    def test_there_may_be_none(self):
        none = {"LD_LIBRARY_PATH": SOFTGPU, "SOFTGPU_DEVICES": "0"}
        self.assertEqual(json.loads(run("--json", **none))["gpus"], [])
        self.assertNotIn("GPU", run(**none).split("parameter = value")[0])


if __name__ == "__main__":
    unittest.main()
