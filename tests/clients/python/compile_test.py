"""The extension of axccl.torch is compiled once, by one process, whatever happens to a process that compiles it.

A stand-in for PyTorch takes its place: its compiler keeps a lock file as PyTorch's does (torch.utils.cpp_extension waits
without end for one that a killed process has left), and makes an extension that does nothing.
"""

import os
import pathlib
import signal
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import unittest

import harness  # noqa: F401  the limit of time

STAND_IN = """
    import os, pathlib, signal, subprocess, sys, types

    def load(name, sources, extra_cflags, extra_include_paths, extra_ldflags, build_directory, is_python_module):
        folder = pathlib.Path(build_directory)
        try:
            (folder / "lock").touch(exist_ok=False)
        except FileExistsError:
            sys.exit("would wait for the lock of another process")
        print("compiles", flush=True)
        if os.environ.get("DIES"):
            os.kill(os.getpid(), signal.SIGKILL)
        code = folder / "nothing.c"
        code.write_text('#include <Python.h>\\n'
                        'static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "%s", 0, -1, 0};\\n'
                        'PyMODINIT_FUNC PyInit_%s(void) { return PyModule_Create(&module); }\\n' % (name, name))
        subprocess.run([os.environ["CC"], "-shared", "-fPIC", "-I", os.environ["PYTHON_INCLUDE"], str(code), "-o",
                        str(folder / f"{name}.so")], check=True)
        (folder / "lock").unlink()

    def module(name, **members):
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(members, __path__=[])
        return sys.modules[name]

    backend = types.SimpleNamespace(register_backend=lambda *arguments, **options: None)
    extension = module("torch.utils.cpp_extension", load=load)
    utils = module("torch.utils", cpp_extension=extension)
    distributed = module("torch.distributed", Backend=backend)
    module("torch", __version__=os.environ.get("VERSION", "2.11.0+cpu"), __file__="torch", utils=utils,
           distributed=distributed)
    import axccl.torch
    print("imported", flush=True)
"""


class Compile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = pathlib.Path(folder.name)

    def start(self, **environment):
        return subprocess.Popen(
            [sys.executable, "-B", "-c", textwrap.dedent(STAND_IN)], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "AXCCL_CACHE_DIR": str(self.cache), "CC": os.environ.get("CC", "cc"),
                 "PYTHON_INCLUDE": sysconfig.get_paths()["include"], **environment})

    def finish(self, process):
        out, err = process.communicate(timeout=harness.SECONDS)
        return process.returncode, out.split(), err

    def test_process_killed_while_it_compiles(self):
        code, out, _ = self.finish(self.start(DIES="1"))
        self.assertEqual((code, out), (-signal.SIGKILL, ["compiles"]))
        self.assertTrue(list(self.cache.glob("**/*.build/lock")), "the stand-in has left no lock: nothing is tested")
        code, out, err = self.finish(self.start())
        self.assertEqual((code, out), (0, ["compiles", "imported"]), err)

    def test_processes_that_start_together(self):
        processes = [self.start() for _ in range(4)]
        results = [self.finish(process) for process in processes]
        for code, out, err in results:
            self.assertEqual((code, out[-1:]), (0, ["imported"]), err)
        self.assertEqual(sum("compiles" in out for _, out, _ in results), 1)

    def test_another_version_has_its_own(self):
        for version in ("2.11.0+cpu", "2.12.0+cpu"):
            code, out, err = self.finish(self.start(VERSION=version))
            self.assertEqual((code, out), (0, ["compiles", "imported"]), err)
        code, out, err = self.finish(self.start())
        self.assertEqual((code, out), (0, ["imported"]), err)

    def test_too_old(self):
        code, out, err = self.finish(self.start(VERSION="2.7.1"))
        self.assertEqual((code, out), (1, []))
        self.assertIn("PyTorch 2.7.1 is too old; install 2.8 or newer", err)


if __name__ == "__main__":
    unittest.main()
