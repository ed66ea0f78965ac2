#!/usr/bin/env python3
"""Collectives inside of jax.jit and jax.shard_map on the CPU: axccl.jax against JAX's own, in two processes.

    python3 perf/jax/jax_perf.py [--json FILE] [--rounds 7] [--own gloo|mpi] [CALL...]

Both take turns in one run; a row is the median over the rounds. A program makes one call, and each is waited for.
"--own mpi": JAX's own on libaxccl_mpi.so. A process has one implementation, so that takes a run of its own.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

SIZES = [8, 4096, 32768, 262144, 1 << 20, 4 << 20, 32 << 20]  # bytes of the larger array of a rank
CALLS = ["psum", "all_gather", "psum_scatter", "all_to_all", "ppermute", "scan"]
STEPS = 50  # calls of one program of "scan", whose row is a call's time


def functions(call, ranks):
    """lax's and ours."""
    from jax import lax
    import axccl.jax as ax

    around = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    def scan(psum):
        return lambda x: lax.scan(lambda carry, _: (psum(carry) * 0.5, None), x, None, STEPS)[0]

    return {"scan": (scan(lambda x: lax.psum(x, "i")), scan(lambda x: ax.all_reduce(x, "i"))),
            "psum": (lambda x: lax.psum(x, "i"), lambda x: ax.all_reduce(x, "i")),
            "all_gather": (lambda x: lax.all_gather(x[:x.size // ranks], "i", tiled=True),
                           lambda x: ax.all_gather(x[:x.size // ranks], "i")),
            "psum_scatter": (lambda x: lax.psum_scatter(x, "i", tiled=True), lambda x: ax.reduce_scatter(x, "i")),
            "all_to_all": (lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True), lambda x: ax.all_to_all(x, "i")),
            "ppermute": (lambda x: lax.ppermute(x, "i", around), lambda x: ax.ppermute(x, "i", perm=around))}[call]


def measure(call, size, ranks, own, rounds):
    """Microseconds of a program with one call, by implementation: the medians."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    count = max(ranks, size // 4 // ranks * ranks)
    mesh = Mesh(np.array(jax.devices()), ("i",))
    x = jax.make_array_from_callback((ranks * count,), NamedSharding(mesh, P("i")),
                                     lambda index: np.ones(count, np.float32))
    programs = {name: jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False))
                for name, function in zip((own, "axccl"), functions(call, ranks))}
    times = {name: [] for name in programs}
    for program in programs.values():
        for _ in range(3):
            jax.block_until_ready(program(x))
    steps = STEPS if call == "scan" else 1
    repeats = max(5, min(200, int(3e7 / (size + 100_000))) // steps)
    for _ in range(rounds):
        for name, program in programs.items():
            jax.block_until_ready(program(x))
            start = time.perf_counter()
            for _ in range(repeats):
                jax.block_until_ready(program(x))
            times[name].append((time.perf_counter() - start) / repeats / steps * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def process(rank, ranks, port, arguments):
    import jax

    jax.distributed.initialize(f"127.0.0.1:{port}", ranks, rank)
    import axccl.jax

    axccl.jax.init()
    rows = []
    for call in arguments.calls or CALLS:
        for size in SIZES:
            if call == "scan" and size > 1 << 20:
                continue
            us = measure(call, size, ranks, arguments.own, arguments.rounds)
            rows.append({"call": call, "bytes": size, **us})
            if rank == 0:
                theirs, ours = us[arguments.own], us["axccl"]
                print(f"{call:14s} {size:9d} B   {arguments.own} {theirs:10.1f} us   axccl {ours:10.1f} us "
                      f"{theirs / ours:7.2f} x", flush=True)
    axccl.jax.shutdown()
    if rank == 0 and arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            whole = {"jax": jax.__version__, "ranks": ranks, "rounds": arguments.rounds, "rows": rows}
            json.dump(whole, file, indent=1)
            file.write("\n")
    jax.distributed.shutdown()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--own", choices=("gloo", "mpi"), default="gloo")
    parser.add_argument("--process", nargs=2, type=int, metavar=("RANK", "PORT"), help=argparse.SUPPRESS)
    parser.add_argument("calls", nargs="*", metavar="CALL", help=", ".join(CALLS))
    arguments = parser.parse_args()
    wrong = set(arguments.calls) - set(CALLS)
    if wrong:
        parser.error(f"no call {', '.join(sorted(wrong))}; there are {', '.join(CALLS)}")
    if arguments.process:
        process(arguments.process[0], arguments.ranks, arguments.process[1], arguments)
        return 0
    import jax
    import axccl.jax  # noqa: F401  compiled here, not by several processes

    print(f"JAX {jax.__version__}, {arguments.ranks} processes", flush=True)
    port = free_port()
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1",
                   "JAX_CPU_COLLECTIVES_IMPLEMENTATION": arguments.own}
    if arguments.own == "mpi":
        from axccl import _build

        environment.update(MPITRAMPOLINE_LIB=str(_build.library("jax_perf").parent / "libaxccl_mpi.so"),
                           NCCL_COMM_ID=f"127.0.0.1:{free_port()}", WORLD_SIZE=str(arguments.ranks))
    children = [subprocess.Popen([sys.executable, *sys.argv, "--process", str(rank), str(port)],
                                 env={**environment, "RANK": str(rank)}) for rank in range(arguments.ranks)]
    return int(any([one.wait() for one in children]))


if __name__ == "__main__":
    sys.exit(main())
