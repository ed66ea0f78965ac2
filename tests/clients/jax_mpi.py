"""lax's own collectives on libaxccl_mpi.so: tests of jax_ffi_check.py for layouts such as 2x1,mpi."""

import os

from jax_ranks import fill, same, total


def test_mpi(ranks):
    """Those that XLA has by MPI, in the types that it has."""
    import jax
    import numpy as np
    from jax import lax

    n = ranks.count
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64",
                  "bfloat16", "complex64", "complex128"):
        for size in (3, 50000):
            rows = fill(n, (n, size), dtype)

            def calls(x):
                around = [(rank, (rank + 1) % n) for rank in range(n)]
                return (lax.psum(x, "i"), lax.all_gather(x, "i", tiled=True), lax.psum_scatter(x, "i", tiled=True),
                        lax.all_to_all(x, "i", 0, 0, tiled=True), lax.ppermute(x, "i", around))

            for rank, y in ranks.run(calls, rows).items():
                right = (total(rows), rows.reshape(-1, size), total(rows)[rank:rank + 1], rows[:, rank], rows[rank - 1])
                names = ("psum", "all_gather", "psum_scatter", "all_to_all", "ppermute")
                for name, found, expected in zip(names, y, right):
                    same(found, expected, f"{name} of {size} {dtype}, rank {rank}")
            if not dtype.startswith("complex"):
                for y in ranks.run(lambda x: (lax.pmax(x, "i"), lax.pmin(x, "i")), rows).values():
                    same(y[0], rows.max(0), f"pmax of {dtype}")
                    same(y[1], rows.min(0), f"pmin of {dtype}")
    bits = fill(n, (5,)) > 1
    for y in ranks.run(lambda x: (lax.psum(x, "i"), lax.pmax(x, "i")), bits).values():
        same(y[0], bits.sum(0).astype(np.int32), "psum of booleans")
        same(y[1], bits.any(0), "pmax of booleans")
    if n == 4:
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
        for axis, groups in (("a", [[0, 2], [1, 3]]), ("b", [[0, 1], [2, 3]])):
            for rank, y in ranks.run(lambda x, axis=axis: lax.psum(x, axis), fill(n, (5,)), mesh, ("a", "b")).items():
                group = next(group for group in groups if rank in group)
                same(y, fill(n, (5,))[group].sum(0), f"psum along {axis}")


def test_mpi_symbols(ranks):
    """Whatever name of MPItrampoline's ABI jaxlib holds, the library has."""
    import ctypes
    import mmap
    import pathlib
    import re
    import jaxlib

    if ranks.process != 0:
        return
    library = ctypes.CDLL(os.environ["MPITRAMPOLINE_LIB"])
    names = set()
    for path in pathlib.Path(jaxlib.__file__).parent.glob("*.so"):
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            names.update(re.findall(rb"(?<=\0)MPIX?ABI_[A-Za-z0-9_]+(?=\0)", content))
    assert len(names) > 500, f"{len(names)} names in {jaxlib.__file__}"
    missing = [name.decode() for name in sorted(names) if not hasattr(library, name.decode())]
    assert not missing, f"libaxccl_mpi.so lacks {missing}"
