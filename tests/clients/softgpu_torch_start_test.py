#!/usr/bin/env python3
"""How a program of PyTorch starts on the software GPU: the extension is compiled once, and found whole by processes that start
meanwhile; what fails is said with a remedy; and what a program has of its own stays.

    python3 tests/clients/softgpu_torch_start_test.py --build build

The extension is an empty one, which takes seconds to compile.
"""

import argparse
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXTENSION = 'extern "C" void softgpu_torch_install() {}\nextern "C" void softgpu_torch_sleep(void*, long) {}\n'
# A compiler that stops when it has written half of a library, until it may go on.
COMPILER = """#!/bin/bash
case " $* " in *" -shared "*)
  while [ $# -gt 0 ]; do arguments+=("$1"); [ "$1" = -o ] && out=$2; shift; done
  echo half >"$out"
  echo >"$HERE/reached"
  read -r <"$HERE/go"
  set -- "${arguments[@]}"
esac
exec c++ "$@"
"""


class Program:
    """Starts programs with an extension and a cache of their own."""

    def __init__(self, build, folder):
        self.folder = folder
        shutil.copytree(ROOT / "tools/softgpu/torch/site", folder / "site")
        (folder / "csrc").mkdir()
        (folder / "csrc/empty.cc").write_text(EXTENSION, encoding="utf-8")
        self.command = [str(ROOT / "tools/softgpu/run"), "--build", build, "env"]
        self.path = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]

    def start(self, text="import torch", **environment):
        path = os.pathsep.join([*self.path, *filter(None, [environment.pop("PYTHONPATH", "")])])
        variables = {"AXCCL_CACHE_DIR": str(self.folder / "cache"), "PYTHONPATH": path, **environment}
        return subprocess.Popen([*self.command, *(f"{name}={value}" for name, value in variables.items()), sys.executable, "-B",
                                 "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, status, words, *arguments, **environment):
        process = self.start(*arguments, **environment)
        output = process.communicate()[0]
        assert process.returncode == status, f"ended with {process.returncode}: {output}"
        assert all(word in output for word in words), f"{words} are not in: {output}"
        return output

    def start_half(self):
        """A program whose extension is half written."""
        for pipe in ("reached", "go"):
            os.mkfifo(self.folder / pipe)
        compiler = self.folder / "compiler"
        compiler.write_text(COMPILER, encoding="utf-8")
        compiler.chmod(0o755)
        process = self.start(CXX=compiler, HERE=self.folder)
        reached = os.open(self.folder / "reached", os.O_RDONLY | os.O_NONBLOCK)
        while not select.select([reached], [], [], 0.1)[0]:
            assert process.poll() is None, process.communicate()[0]
        os.close(reached)
        return process


def test_meanwhile(program):
    first = program.start_half()
    # The second waits for a lock that the kernel shows; without it, it would load half of a library, and end.
    second = program.start()
    lock = next((program.folder / "cache").glob("softgpu/*/lock"))
    while second.poll() is None and not waits_for(lock):
        os.sched_yield()
    (program.folder / "go").write_text("\n", encoding="utf-8")
    for process in (first, second):
        output = process.communicate()[0]
        assert process.returncode == 0, output
        assert ("compiling" in output) == (process is first), output


def waits_for(path):
    """Whether a process waits for the lock of that file."""
    inode = f":{path.stat().st_ino} "
    with open("/proc/locks", encoding="utf-8") as locks:
        return any("->" in line and inode in line for line in locks)


def test_killed(program):
    """A process that is killed while it compiles is in nobody's way."""
    first = program.start_half()
    compiling = next((program.folder / "cache").glob("softgpu/*/build"))
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert (compiling / "lock").exists(), "PyTorch's own lock is gone; this test shows nothing"
    program.run(0, ["compiling"])
    program.run(0, [])
    (program.folder / "go").write_text("\n", encoding="utf-8")  # its compiler ends, too


def test_refused(program):
    program.run(1, ["ImportError: softgpu: the extension for PyTorch cannot be compiled in", "C++17 compiler", "SOFTGPU_TORCH=0"],
                CXX="/nonexistent/c++")
    output = program.run(0, ["CUDA devices"], "import torch; print(torch.cuda.device_count(), 'CUDA devices')", SOFTGPU_TORCH="0")
    assert "compiling" not in output, output


def test_own_sitecustomize(program):
    own = program.folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('mine runs')", encoding="utf-8")
    output = program.run(0, ["mine runs", "nothing else"], "print('nothing else')", PYTHONPATH=str(own))
    assert "compiling" not in output, output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("tests", nargs="*", metavar="TEST")
    arguments = parser.parse_args()
    tests = {name[len("test_"):]: test for name, test in globals().items() if name.startswith("test_")}
    for name in arguments.tests or tests:
        with tempfile.TemporaryDirectory() as folder:
            tests[name](Program(arguments.build, pathlib.Path(folder)))
        print(f"{name}: right", flush=True)


if __name__ == "__main__":
    main()
