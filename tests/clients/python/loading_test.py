"""Which library the package loads."""

import os
import subprocess
import sys
import tempfile
import unittest

import harness  # noqa: F401 (the deadline)
from axccl import _build

_SCRIPT = """
import ctypes, sys
import axccl
for path in sys.argv[1:]:
    ctypes.CDLL(path)
print(axccl.local(2).run(lambda comm: comm.size))
"""


class Loading(unittest.TestCase):
    def test_its_own(self):
        """Whatever LD_LIBRARY_PATH has, such as the library of another version."""
        mpi = _build.library("loading_test").parent / "libaxccl_mpi.so"
        arguments = [str(mpi)] if mpi.exists() else []
        with tempfile.TemporaryDirectory() as other:
            with open(os.path.join(other, "libaxccl.so.0"), "w", encoding="utf-8") as file:
                file.write("no library")
            done = subprocess.run([sys.executable, "-c", _SCRIPT, *arguments], capture_output=True, text=True,
                                  check=False, env={**os.environ, "LD_LIBRARY_PATH": other})
        self.assertEqual((done.stdout, done.stderr), ("[2, 2]\n", ""))


if __name__ == "__main__":
    unittest.main()
