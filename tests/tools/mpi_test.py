#!/usr/bin/env python3
"""What libaxccl_mpi.so makes of a launcher's variables: mpi_test.py LIBRARY

What it computes is in tests/clients/jax_mpi.py, with JAX."""

import ctypes
import os
import subprocess
import sys
import unittest

LIBRARY = sys.argv.pop(1)
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")


def join():
    """Prints the rank and the number of ranks, or the error."""
    mpi = ctypes.CDLL(LIBRARY)
    provided, rank, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    text, length = ctypes.create_string_buffer(1024), ctypes.c_int()  # MPI_MAX_ERROR_STRING of MPItrampoline
    if mpi.MPIABI_Init_thread(None, None, 1, ctypes.byref(provided)) != 0:
        mpi.MPIABI_Error_string(1, text, ctypes.byref(length))
        print(text.value.decode())
        return
    world = ctypes.c_ssize_t.in_dll(mpi, "MPIABI_COMM_WORLD")
    mpi.MPIABI_Comm_rank(world, ctypes.byref(rank))
    mpi.MPIABI_Comm_size(world, ctypes.byref(size))
    print(f"rank {rank.value} of {size.value}")
    mpi.MPIABI_Finalize()


class Places(unittest.TestCase):
    def of(self, **variables):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("RANK", "WORLD_", "MASTER_", "NCCL_", "OMPI_", "PMI", "MV2_", "SLURM_", "TORCHELASTIC_"))}
        ran = subprocess.run([sys.executable, "-B", __file__, LIBRARY, "join"], env={**environment, **variables}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout)
        return ran.stdout

    def test_one_rank(self):
        for rank in RANKS:
            size = {"RANK": "WORLD_SIZE", "SLURM_PROCID": "SLURM_NTASKS"}.get(rank, rank.replace("RANK", "SIZE"))
            with self.subTest(rank):
                self.assertEqual(self.of(**{rank: "0", size: "1"}), "rank 0 of 1\n")
                self.assertIn(f"{rank} is 'one', not a number", self.of(**{rank: "one", size: "1"}))
                self.assertIn(f"{size} is '1x', not a number", self.of(**{rank: "0", size: "1x"}))
                self.assertIn("rank 3 of 2", self.of(**{rank: "3", size: "2"}))

    def test_long_texts_are_whole(self):
        self.assertTrue(self.of(RANK="1" * 400 + "x", WORLD_SIZE="1").endswith("1x', not a number\n"))

    def test_none(self):
        self.assertIn("no rank; set RANK, WORLD_SIZE", self.of())

    def test_meeting(self):
        self.assertIn("no place to meet; set NCCL_COMM_ID", self.of(RANK="0", WORLD_SIZE="2"))
        self.assertIn("MASTER_PORT is 'near', not a number",
                      self.of(PMI_RANK="0", PMI_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="near"))


if __name__ == "__main__":
    if sys.argv[1:] == ["join"]:
        join()
    else:
        unittest.main()
