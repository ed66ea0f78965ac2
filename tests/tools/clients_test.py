#!/usr/bin/env python3
"""What .ci/run and tools/clients make of what goes wrong: clients_test.py CHECKOUT

They run in a folder of their own. A Python that only pretends makes the virtual environment; what its pip and python
then do is in files that a test writes: pip-PACKAGE and check-SCRIPT, shell commands, for a part of their arguments."""

import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

CHECKOUT = pathlib.Path(sys.argv.pop(1)).resolve()

# Runs the command that is written for the first of the names that is part of an argument.
ACT = """
act() {
  for file in "$PRETEND/$1"-*; do
    [ -e "$file" ] && case "$2" in *"${file#"$PRETEND/$1-"}"*) . "$file" ;; esac
  done
}
"""
PYTHON = """#!/bin/bash
case "$1" in
  -VV) echo "Python 3.11 that pretends" ;;
  -m) act venv "$3"
      mkdir -p "$3/bin"
      for name in pip python auditwheel axccl-info axccl-plan all_reduce_perf; do cp "$PRETEND/$name" "$3/bin"; done ;;
esac
"""
PIP = """#!/bin/bash
act pip "$*"
if [ "$1" = wheel ]; then mkdir -p build/clients/built; touch build/clients/built/axccl.whl; fi
exit 0
"""
AUDITWHEEL = """#!/bin/bash
mkdir -p build/clients/dist
touch build/clients/dist/axccl-0-manylinux_2_28_x86_64.whl
"""


class Clients(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name) / "checkout"
        for name in (".ci/run", "tools/clients", "tools/packages.sh", "tools/python/requirements.txt"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, self.root / name)
        self.pretend = pathlib.Path(holder.name) / "pretend"
        self.pretend.mkdir()
        self.program("tools/test", "#!/bin/bash\necho tests\nexit ${TESTS:-0}\n")
        act = "#!/bin/bash\n" + ACT
        for name, text in (("python3", PYTHON), ("pip", PIP), ("auditwheel", AUDITWHEEL), ("axccl-info", ""), ("axccl-plan", ""),
                           ("python", "act check \"$*\"\nexit 0\n"), ("all_reduce_perf", "echo '# Out of bounds values : 0 OK'\n")):
            self.program(self.pretend / name, act + text.replace("#!/bin/bash\n", ""))
        self.environment = {**os.environ, "PRETEND": str(self.pretend), "AXCCL_PYTHON": str(self.pretend / "python3"),
                            "AXCCL_WHEEL_GLIBC": "2.28", "PATH": f"{self.pretend}:{os.environ['PATH']}"}
        for name in ("CI", "HOME"):  # a program needs neither
            self.environment.pop(name, None)

    def program(self, name, text):
        path = self.root / name
        path.write_text(text, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def when(self, what, command):
        """`command` runs as part of pip, or of the check of a client."""
        (self.pretend / what).write_text(command + "\n", encoding="utf-8")

    def run_ci(self, *command, status=0, **environment):
        ran = subprocess.run(command or [".ci/run"], cwd=self.root, env={**self.environment, **environment}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
        self.assertEqual(ran.returncode, status, ran.stdout)
        return ran.stdout

    def lines(self, output, *beginnings):
        summary = output[output.index("== summary of clients =="):]
        for beginning in beginnings:
            self.assertIn(f"\n{beginning}", summary)
        return summary

    def test_all_pass(self):
        output = self.run_ci()
        self.assertTrue(output.startswith("tests\n"), output)
        summary = self.lines(output, "environment: passed", "wheel: passed", "numpy: passed", "jax: passed", "torch: passed")
        self.assertEqual(summary.count("FAILED") + summary.count("left out"), 0, output)

    def test_either_fails(self):
        self.lines(self.run_ci(status=1, TESTS="1"), "torch: passed")
        self.when("check-torch_cpu_check", "echo the check says why; exit 1")
        output = self.run_ci(status=1)
        self.lines(output, "jax: passed", "torch: FAILED")
        self.assertIn("the check says why", output)

    def test_arguments_are_those_of_tools_test(self):
        self.program("tools/test", "#!/bin/bash\necho \"tests of $*\"\n")
        self.assertIn("tests of release fuzz\n", self.run_ci(".ci/run", "release", "fuzz"))
        self.assertIn("tests of release address thread fuzz\n", self.run_ci())

    def test_packages_that_cannot_be_had(self):
        self.when("pip-torch", "echo 'ERROR: No matching distribution found for torch'; exit 1")
        self.lines(self.run_ci(), "jax: passed", "torch: left out: torch==2.11.0 ninja==1.13.2 cannot be installed: ERROR: No match")
        self.when("pip-requirements", "exit 1")  # no network
        shutil.rmtree(self.root / "build")
        self.lines(self.run_ci(), "environment: left out: the virtual environment cannot be made", "numpy jax torch: not run")

    def test_an_older_jax(self):
        self.when("pip-jax==0.10.2", "exit 1")
        self.lines(self.run_ci(), "jax: passed")

    def test_a_disk_that_is_too_small(self):
        self.program(self.pretend / "df", "#!/bin/bash\necho Avail\necho 7000000\n")
        self.lines(self.run_ci(), "jax: passed", "torch: left out: the disk has less than 8 GB")
        self.program(self.pretend / "df", "#!/bin/bash\necho Avail\necho 1000000\n")
        self.lines(self.run_ci(), "environment: left out: the disk has less than 2 GB", "numpy jax torch: not run")

    def test_an_installed_package_that_fails(self):
        self.when("check-jax_ffi_check", "exit 3")
        self.lines(self.run_ci(status=1), "numpy: passed", "jax: FAILED", "torch: passed")

    def test_a_wheel_that_cannot_be_built(self):
        self.when("pip-wheel tools", "echo no compiler; exit 1")
        output = self.run_ci(status=1)
        self.lines(output, "wheel: FAILED", "numpy jax torch: not run")
        self.assertIn("no compiler", output)

    def test_a_check_that_hangs(self):
        """It ends with all its processes, and the other parts have their time."""
        alive = self.pretend / "alive"
        self.when("check-random_test", f"sleep 1000 & echo $! >{alive}; wait")
        output = self.run_ci("tools/clients", "--within", "100", "numpy", "torch", status=1)
        self.lines(output, "numpy: FAILED, not done after", "torch: passed")
        state = pathlib.Path(f"/proc/{alive.read_text().strip()}/stat")
        self.assertTrue(not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z", "a process is left")

    def test_a_network_that_hangs(self):
        self.when("pip-nccl4py", "sleep 1000")
        self.lines(self.run_ci("tools/clients", "--within", "100", "nccl4py", "torch"),
                   "nccl4py: left out: nccl4py==0.6.0 could not be installed in time", "torch: passed")

    def test_usage(self):
        self.assertIn("usage:", self.run_ci("tools/clients", "--within", "soon", status=2))
        self.assertIn("usage:", self.run_ci("tools/clients", "numpi", status=2))
        self.assertIn("usage:", self.run_ci("tools/clients", "--help"))


if __name__ == "__main__":
    unittest.main()
