"""Tensors of other packages as operands. Those of packages that are not installed are skipped."""

import socket
import subprocess
import sys
import unittest

import numpy as np

import axccl
import harness  # noqa: F401 (the deadline)
from failures_test import interrupt

try:
    import jax.numpy as jnp
except ImportError:
    jnp = None
try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(jnp is None, "jax is not installed")
class Jax(unittest.TestCase):
    def test_inputs(self):
        def rank(comm):
            for dtype in (jnp.float32, jnp.bfloat16, jnp.int8, jnp.bool_, jnp.complex64):
                found = comm.all_gather(jnp.array([[comm.rank, 1]], dtype), axis=1)
                np.testing.assert_array_equal(found, jnp.array([[0, 1, 1, 1]], dtype))
                self.assertEqual(found.dtype, dtype)
            return comm.broadcast(jnp.full(2, comm.rank) if comm.rank == 1 else np.zeros(2, np.int32), root=1).tolist()
        self.assertEqual(axccl.local(2).run(rank), [[1, 1], [1, 1]])

    def test_its_library_is_no_others(self):
        """Symbols of NCCL's names, in reach of all libraries, would take the place of PyTorch's own."""
        script = "import ctypes, axccl.jax; print(hasattr(ctypes.CDLL(None), 'ncclGetVersion'))"
        done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(done.stdout, "False\n")

    def test_interrupted_init(self):
        import axccl.jax  # noqa: F401  compiled here, not within the child's deadline
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{free.getsockname()[1]}"
        printed, status = interrupt(f"""
            import os
            os.environ.update(JAX_PLATFORMS="cpu", RANK="0", WORLD_SIZE="2", NCCL_COMM_ID={place!r})
            import traceback
            import axccl.jax, jax
            jax.local_devices(backend="cpu")
            try:
                reached()
                axccl.jax.init()
            except KeyboardInterrupt:
                print("interrupted" if "_join" in traceback.format_exc() else traceback.format_exc())
            os.environ.update(WORLD_SIZE="1")
            try:
                axccl.jax.init(timeout=-1)
            except axccl.ArgumentError as error:
                print(error)
            axccl.jax.init()
            print(axccl.jax.size(), "rank")
            """)
        self.assertEqual(status, 0, printed)
        for words in ("interrupted", "init: argument timeout is -1", "1 rank"):
            self.assertIn(words, printed)

    def test_arrays_never_change(self):
        def rank(comm):
            for dtype in (jnp.float32, jnp.bfloat16):
                with self.assertRaisesRegex(axccl.ArgumentError, "argument out is read-only"):
                    comm.all_reduce(np.ones(2, dtype), out=jnp.zeros(2, dtype))
        axccl.local(1).run(rank)


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(unittest.TestCase):
    def test_operands(self):
        def rank(comm):
            for dtype in (torch.float32, torch.bfloat16, torch.int16, torch.bool, torch.complex64):
                x = torch.ones(2, 3).to(dtype).T
                out = torch.zeros(3, 4).to(dtype)
                self.assertIs(comm.all_gather(x, axis=1, out=out), out)
                self.assertTrue(torch.equal(out, torch.ones(3, 4).to(dtype)))
            out = torch.zeros(2)
            comm.all_reduce([torch.full((2,), 1.0 + comm.rank)], out=[out])
            return out.tolist()
        self.assertEqual(axccl.local(2).run(rank), [[3.0, 3.0], [3.0, 3.0]])

    def test_what_memory_does_not_show(self):
        """Conjugates and signs that were not computed, and what has to be recorded for gradients."""
        def rank(comm):
            conjugate = torch.tensor([1 + 2j]).conj()
            for x, words in ((conjugate, "conjugate"), (conjugate.imag, "negative bit"),
                             (torch.ones(1, requires_grad=True), "gradient")):
                kind = TypeError if words == "negative bit" else BufferError
                with self.assertRaisesRegex(kind, words):
                    comm.all_gather(x)
                with self.assertRaisesRegex(kind, words):
                    comm.all_reduce(torch.zeros(1, dtype=x.dtype), out=x)
            return comm.all_gather(conjugate.resolve_conj()).tolist(), comm.all_gather(conjugate.imag + 0).tolist()
        self.assertEqual(axccl.local(2).run(rank), [([1 - 2j] * 2, [-2.0] * 2)] * 2)


if __name__ == "__main__":
    unittest.main()
