#!/usr/bin/env python3
"""JAX's collectives on AxCCL: several processes with one GPU each (which may be the same), compared with NumPy's results.

    LD_PRELOAD=$PWD/build/dropin/libnccl.so.2 python3 tests/clients/jax_check.py --ranks 2

With `--platform cpu` the same with JAX's gloo, without a GPU and without the library, to check this script.
Each process knows the inputs of all. Values are small integers, so sums are exact.
"""

import argparse
import os
import socket
import subprocess
import sys

SIZES = [1, 129, 4096, 1 << 18]  # elements of a block
TYPES = ["float32", "bfloat16", "int32"]
SECONDS = 240


def child(rank, ranks, port, platform):
    # Before JAX is loaded, because it would take three quarters of the GPU for each process.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if platform == "cpu":
        os.environ.update(JAX_PLATFORMS="cpu", JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo", JAX_NUM_CPU_DEVICES="1")
    import jax  # pylint: disable=import-outside-toplevel

    device = 0 if platform == "cpu" else rank % visible_gpus()
    jax.distributed.initialize(f"127.0.0.1:{port}", ranks, rank, local_device_ids=[device])
    import jax.numpy as jnp  # pylint: disable=import-outside-toplevel
    import numpy as np  # pylint: disable=import-outside-toplevel
    from jax.sharding import Mesh, NamedSharding, PartitionSpec  # pylint: disable=import-outside-toplevel

    try:
        shard_map = jax.shard_map
    except AttributeError:  # JAX before 0.6
        from jax.experimental.shard_map import shard_map  # pylint: disable=import-outside-toplevel

    lax = jax.lax
    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    assert len(jax.devices()) == ranks, f"{len(jax.devices())} devices for {ranks} ranks: {jax.devices()}"
    spread = PartitionSpec("ranks")

    def run(function, inputs):
        """Runs `function` on each rank's shard (a row of `inputs`); returns this rank's result, and its position."""
        sharding = NamedSharding(mesh, spread)
        whole = jax.make_array_from_callback(inputs.shape, sharding, lambda index: inputs[index])
        # A row has a leading dimension of 1 in its shard.
        body = lambda shard: function(shard[0])[None]
        result = jax.jit(shard_map(body, mesh=mesh, in_specs=spread, out_specs=spread))(whole)
        mine = result.addressable_shards[0]
        return np.asarray(mine.data)[0], mine.index[0].start or 0

    def expect(what, found, expected):
        found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
        if found.shape != expected.shape:
            raise AssertionError(f"{what}: shape {found.shape} in place of {expected.shape}")
        if not np.array_equal(found, expected):
            at = np.argwhere(found != expected)[0]
            raise AssertionError(f"{what}: wrong at {tuple(at)}: {found[tuple(at)]} in place of {expected[tuple(at)]}")

    def check(size, name):
        dtype = jnp.dtype(name)
        rows = (np.arange(ranks * ranks * size).reshape(ranks, ranks * size) * 5 + np.arange(ranks)[:, None] * 3) % 7
        inputs = rows.astype(dtype)
        total = rows.sum(0)
        what = f"of {size} {name}"

        found, _ = run(lambda x: lax.psum(x, "ranks"), inputs)
        expect(f"psum {what}", found, total)
        found, _ = run(lambda x: lax.pmax(x, "ranks"), inputs)
        expect(f"pmax {what}", found, rows.max(0))
        found, _ = run(lambda x: lax.all_gather(x, "ranks", tiled=True), inputs)
        expect(f"all_gather {what}", found, rows.reshape(-1))
        found, me = run(lambda x: lax.psum_scatter(x, "ranks", tiled=True), inputs)
        expect(f"psum_scatter {what}", found, total[me * size:(me + 1) * size])
        found, me = run(lambda x: lax.all_to_all(x, "ranks", 0, 0, tiled=True), inputs)
        expect(f"all_to_all {what}", found, rows[:, me * size:(me + 1) * size].reshape(-1))
        around = [(source, (source + 1) % ranks) for source in range(ranks)]
        found, me = run(lambda x: lax.ppermute(x, "ranks", around), inputs)
        expect(f"ppermute {what}", found, rows[(me - 1) % ranks])

    for name in TYPES:
        for size in SIZES:
            check(size, name)
    # In one piece, because others print at the same time.
    sys.stdout.write(f"rank {rank} of {ranks} on {jax.local_devices()}: all right\n")
    sys.stdout.flush()
    jax.distributed.shutdown()


def visible_gpus():
    """The number of GPUs that this process sees, before JAX has been started."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return max(1, len([name for name in chosen.split(",") if name]))
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 1
    return max(1, sum(line.startswith("GPU ") for line in done.stdout.splitlines()))


def parent(ranks, platform):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "--ranks", str(ranks), "--rank", str(rank),
                                  "--port", str(port), "--platform", platform]) for rank in range(ranks)]
    try:
        return 1 if any([process.wait(timeout=SECONDS) != 0 for process in children]) else 0
    except subprocess.TimeoutExpired:
        print(f"not all ranks have ended within {SECONDS} s", file=sys.stderr)
        return 1
    finally:
        for process in children:
            if process.poll() is None:
                process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--platform", default="gpu", choices=("gpu", "cpu"))
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is None:
        return parent(arguments.ranks, arguments.platform)
    child(arguments.rank, arguments.ranks, arguments.port, arguments.platform)
    return 0


if __name__ == "__main__":
    sys.exit(main())
