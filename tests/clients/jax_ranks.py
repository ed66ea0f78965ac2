"""Ranks of JAX on the CPU, for checks: processes, what a test compares with, and how a test runs on all ranks."""

import os
import re
import socket
import subprocess
import sys
import time

SECONDS = 600  # for a layout


class Ranks:
    """What a test works with: the ranks, their mesh, and the modules."""

    def __init__(self, processes, devices, process, mode):
        import jax
        import numpy as np

        self.processes, self.devices, self.process, self.mode = processes, devices, process, mode
        self.count = len(jax.devices())  # ranks that a mesh can have
        self.mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))

    def run(self, function, inputs, mesh=None, axes="i", out=None, check_vma=False):
        """function(shard) on each rank, of the rows of `inputs`; this process's results by rank."""
        import jax
        from jax.sharding import NamedSharding, PartitionSpec as P

        mesh = mesh or self.mesh
        spec = P(axes)

        def spread(rows):
            return jax.make_array_from_callback(rows.shape, NamedSharding(mesh, spec), lambda index: rows[index])

        def body(*shards):
            return jax.tree.map(lambda y: y[None], function(*jax.tree.map(lambda x: x[0], shards)))

        program = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec if out is None else out,
                                        check_vma=check_vma))
        return shards_of(program(*jax.tree.map(spread, inputs if isinstance(inputs, tuple) else (inputs,))))


def shards_of(results):
    """{rank: result} of the shards that this process has; a result is an array or a tuple of arrays."""
    import numpy as np

    leaves = results if isinstance(results, (tuple, list)) else [results]
    found = {}
    for leaf in leaves:
        for shard in leaf.addressable_shards:
            found.setdefault(shard.index[0].start or 0, []).append(np.asarray(shard.data)[0])
    return {rank: tuple(values) if len(leaves) > 1 else values[0] for rank, values in found.items()}


def fill(ranks, shape, dtype="float32", salt=0):
    """Small integers, a row of each rank, so that sums are exact in every type."""
    import jax.numpy as jnp
    import numpy as np

    index, rank = np.arange(int(np.prod(shape)))[None], np.arange(ranks)[:, None]
    rows = (index * 5 + rank * (3 + index % 5) + salt) % (2 if "float8" in str(dtype) else 7)
    return np.asarray(rows.astype(jnp.dtype(dtype))).reshape(ranks, *shape)


def total(rows):
    """The sum over the ranks, in the type of the rows."""
    import numpy as np

    return rows.astype(np.complex128 if rows.dtype.kind == "c" else np.float64).sum(0).astype(rows.dtype)


def same(found, expected, what):
    import numpy as np

    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, expected {expected.shape}"
    assert found.dtype == expected.dtype, f"{what}: {found.dtype}, expected {expected.dtype}"
    assert found.tobytes() == expected.tobytes(), f"{what}: found {found}, expected {expected}"


def close(found, expected, what):
    import numpy as np

    np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(expected, np.float64), rtol=1e-4, atol=1e-4,
                               err_msg=what)


def raises(kinds, words, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kinds as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return
    raise AssertionError(f"no error with {words}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def mpi_library():
    """libaxccl_mpi.so beside the library that axccl has loaded."""
    from axccl import _build

    return str(_build.library("jax_ranks").parent / "libaxccl_mpi.so")


def environment(processes, devices, process, port, mode, place):
    flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", os.environ.get("XLA_FLAGS", ""))
    given = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "JAX_NUM_CPU_DEVICES": str(devices),
             "XLA_FLAGS": flags, "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NCCL_COMM_ID"):
        given.pop(name, None)
    if mode:
        given.update(RANK=str(process), WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if mode == "mpi":
        given.update(JAX_CPU_COLLECTIVES_IMPLEMENTATION="mpi", MPITRAMPOLINE_LIB=mpi_library(),
                     NCCL_COMM_ID=place)
    return given


def parse(layout):
    """"2x1,launcher": processes, devices of each, how they meet (by JAX, a launcher, or MPI)."""
    shape, _, mode = layout.partition(",")
    processes, devices = map(int, shape.split("x"))
    return processes, devices, mode


def run(program, layout, chosen):
    """True if all processes of a layout passed the tests. Each is `program --child LAYOUT PROCESS PORT TEST...`."""
    processes, devices, mode = parse(layout)
    port, place = free_port(), f"127.0.0.1:{free_port()}"
    started = time.monotonic()
    children = [subprocess.Popen([sys.executable, "-B", os.path.abspath(program), "--child", layout, str(process),
                                  str(port), *chosen], env=environment(processes, devices, process, port, mode, place))
                for process in range(processes)]
    try:
        codes = [one.wait(timeout=max(1, SECONDS - (time.monotonic() - started))) for one in children]
    except subprocess.TimeoutExpired:
        print(f"{layout}: not all processes have ended within {SECONDS} s", flush=True)
        codes = [1]
    finally:
        for one in children:
            if one.poll() is None:
                one.kill()
    right = not any(codes)
    print(f"{layout}: {', '.join(chosen)}: {'all right' if right else f'FAILED, exit statuses {codes}'} "
          f"({time.monotonic() - started:.0f} s)", flush=True)
    return right
