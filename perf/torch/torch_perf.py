#!/usr/bin/env python3
"""torch.distributed on the CPU: axccl against gloo of the same PyTorch, in two processes.

    python3 perf/torch/torch_perf.py [--json FILE] [--rounds 7] [OPERATION...]

The backends take turns; a row is the median over the rounds. "allocator": the tensors were made under
axccl.torch.use_allocator(). "floor": what torch.distributed itself costs in the same processes at the same time, by its
backend `fake`, which does nothing: two processes that compute slow each other down where their cores share something.
"""

import argparse
import datetime
import json
import os
import socket
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.testing._internal.distributed.fake_pg  # noqa: F401  registers the backend "fake"

SIZES = [8, 4096, 32768, 262144, 1 << 20, 8 << 20, 64 << 20]  # bytes of the larger tensor
OPERATIONS = ["all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "all_gather"]


def call_of(operation, count, ranks, group):
    """A call without arguments; its tensors are made here."""
    large = torch.ones(count)
    small = torch.ones(max(1, count // ranks))
    if operation == "all_reduce":
        return lambda: dist.all_reduce(large, group=group)
    if operation == "all_gather_into_tensor":
        return lambda: dist.all_gather_into_tensor(large, small, group=group)
    if operation == "reduce_scatter_tensor":
        return lambda: dist.reduce_scatter_tensor(small, large, group=group)
    if operation == "all_to_all_single":
        other = torch.ones(count)
        return lambda: dist.all_to_all_single(other, large, group=group)
    parts = [torch.ones(max(1, count // ranks)) for _ in range(ranks)]
    return lambda: dist.all_gather(parts, small, group=group)


def measure(operation, size, ranks, groups, rounds):
    """Microseconds of a call, by backend: the medians."""
    import axccl.torch

    count = max(ranks, size // 4 // ranks * ranks)
    calls = {}
    for name, group in groups.items():
        if name == "allocator":
            axccl.torch.use_allocator(0)
        calls[name] = call_of(operation, count, ranks, group)
        axccl.torch.stop_using_allocator()
    times = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            most = 60 if name == "gloo" else 400
            repeats = max(3, min(most, int(3e7 / (size + 100_000))))
            dist.barrier(group=groups["axccl"])
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            times[name].append((time.perf_counter() - start) / repeats * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def process(rank, ranks, port, arguments, report):
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    import axccl.torch  # noqa: F401

    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=300))
    axccl_group = dist.new_group(backend="axccl")
    groups = {"gloo": dist.group.WORLD, "axccl": axccl_group, "allocator": axccl_group,
              "floor": dist.new_group(backend="fake")}
    rows = []
    for operation in arguments.operations or OPERATIONS:
        for size in SIZES:
            us = measure(operation, size, ranks, groups, arguments.rounds)
            rows.append({"operation": operation, "bytes": size, **us})
            if rank == 0:
                print(f"{operation:24s} {size:9d} B   gloo {us['gloo']:10.1f}   axccl {us['axccl']:9.1f} us {us['gloo'] / us['axccl']:7.1f} x"
                      f"   allocator {us['allocator']:9.1f} us {us['gloo'] / us['allocator']:7.1f} x"
                      f"   floor {us['floor']:5.1f} us", flush=True)
    dist.barrier(group=axccl_group)
    dist.destroy_process_group()
    if rank == 0:
        with open(report, "w", encoding="utf-8") as file:
            json.dump(rows, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("operations", nargs="*", metavar="OPERATION", help=", ".join(OPERATIONS))
    arguments = parser.parse_args()
    wrong = set(arguments.operations) - set(OPERATIONS)
    if wrong:
        parser.error(f"no operation {', '.join(sorted(wrong))}; there are {', '.join(OPERATIONS)}")
    import axccl.torch  # noqa: F401  compiled here, not by several processes

    print(f"PyTorch {torch.__version__}, {arguments.ranks} processes", flush=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "rows.json")
        mp.spawn(process, (arguments.ranks, port, arguments, report), nprocs=arguments.ranks)
        with open(report, encoding="utf-8") as file:
            rows = json.load(file)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"pytorch": torch.__version__, "ranks": arguments.ranks, "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
