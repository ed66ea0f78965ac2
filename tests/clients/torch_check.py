#!/usr/bin/env python3
"""torch.distributed's NCCL backend on AxCCL: several processes, which share GPUs, compared with one process.

    LD_PRELOAD=$PWD/build/dropin/libnccl.so.2 python3 tests/clients/torch_check.py --ranks 2

Collectives of many sizes and types, CUDA graphs, a few steps of training with DDP and FSDP2 (torch_training.py), with tensor
parallelism and in pipelines (torch_parallel.py). With `--backend axccl --device cpu` the same on CPU tensors (package axccl),
and with `--backend gloo --device cpu` without the library, to check this script. Every input is a function of rank, operation
and element, so each process knows the inputs of all and computes what it must get. Values are small integers: sums are exact in
every type, whatever their order. Up to 16 ranks.
"""

import argparse
import functools
import os
import socket
import sys
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import torch_parallel
import torch_training

SIZES = [1, 7, 1024, 100_003, 1 << 20]  # elements of a block
TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8]
TIMEOUT = timedelta(seconds=120)


class Patterns:
    """The inputs of all ranks: stretches of one tensor, so that they cost nothing. They begin at different places, so that a
    block which is displaced differs from the one that belongs there."""

    STARTS = 65521  # a prime

    def __init__(self, ranks, device):
        self.ranks, self.device, self.dtype = ranks, device, None

    def of(self, rank, salt, size, dtype):
        """0 to 6: sums of up to 16 ranks stay exact in bfloat16 and within uint8."""
        start = (salt * 16 + rank) * 37 % self.STARTS
        if dtype != self.dtype:  # one type at a time
            generator = torch.Generator().manual_seed(3)
            longest = self.ranks * (max(SIZES) + 2 * self.ranks) + self.STARTS
            self.values = torch.randint(0, 7, (longest,), generator=generator, dtype=torch.uint8).to(self.device, dtype)
            self.dtype = dtype
        return self.values[start:start + size]


def expect(what, found, expected):
    if not torch.equal(found, expected):
        wrong = (found != expected).nonzero().flatten()
        at = int(wrong[0])
        raise AssertionError(f"{what}: {len(wrong)} of {found.numel()} elements are wrong, the first at {at}: "
                             f"{found[at].item()} in place of {expected[at].item()}")


class Rank:
    def __init__(self, rank, ranks, device):
        self.rank, self.ranks, self.device = rank, ranks, device
        self.salt, self.patterns = 0, Patterns(ranks, device)

    def inputs(self, size, dtype):
        """The inputs of all ranks, of one size or of a list of sizes, new ones each time. That of this rank is a copy."""
        self.salt += 1
        sizes = size if isinstance(size, list) else [size] * self.ranks
        found = [self.patterns.of(rank, self.salt, length, dtype) for rank, length in enumerate(sizes)]
        found[self.rank] = found[self.rank].clone()
        return found

    def spoiled(self, size, dtype):
        return torch.full((size,), 99, dtype=dtype, device=self.device)

    def all_reduce(self, size, dtype):
        for op, fold in ((dist.ReduceOp.SUM, torch.add), (dist.ReduceOp.MAX, torch.maximum),
                         (dist.ReduceOp.MIN, torch.minimum)):
            inputs = self.inputs(size, dtype)
            mine = inputs[self.rank].clone()
            dist.all_reduce(mine, op)
            expect(f"all_reduce {op}", mine, functools.reduce(fold, inputs))

    def all_gather(self, size, dtype):
        inputs = self.inputs(size, dtype)
        out = self.spoiled(size * self.ranks, dtype)
        dist.all_gather_into_tensor(out, inputs[self.rank])
        expect("all_gather_into_tensor", out, torch.cat(inputs))

    def reduce_scatter(self, size, dtype):
        inputs = self.inputs(size * self.ranks, dtype)
        out = self.spoiled(size, dtype)
        dist.reduce_scatter_tensor(out, inputs[self.rank])
        mine = slice(self.rank * size, (self.rank + 1) * size)
        expect("reduce_scatter_tensor", out, functools.reduce(torch.add, [one[mine] for one in inputs]))

    def all_to_all(self, size, dtype):
        inputs = self.inputs(size * self.ranks, dtype)
        out = self.spoiled(size * self.ranks, dtype)
        dist.all_to_all_single(out, inputs[self.rank])
        mine = slice(self.rank * size, (self.rank + 1) * size)
        expect("all_to_all_single", out, torch.cat([one[mine] for one in inputs]))

    def uneven_all_to_all(self, size, dtype):
        """Rank r sends size + r + s elements to rank s."""
        counts = [[size + r + s for s in range(self.ranks)] for r in range(self.ranks)]
        inputs = self.inputs([sum(row) for row in counts], dtype)
        received = [counts[r][self.rank] for r in range(self.ranks)]
        out = self.spoiled(sum(received), dtype)
        dist.all_to_all_single(out, inputs[self.rank], received, counts[self.rank])
        parts = [torch.split(inputs[r], counts[r])[self.rank] for r in range(self.ranks)]
        expect("all_to_all_single of different sizes", out, torch.cat(parts))

    def broadcast(self, size, dtype):
        for root in range(self.ranks):
            inputs = self.inputs(size, dtype)
            mine = inputs[self.rank].clone()
            dist.broadcast(mine, root)
            expect(f"broadcast of rank {root}", mine, inputs[root])

    def ring(self, size, dtype):
        """send and recv, grouped, as pipelines use them."""
        inputs = self.inputs(size, dtype)
        before, after = (self.rank - 1) % self.ranks, (self.rank + 1) % self.ranks
        out = self.spoiled(size, dtype)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, inputs[self.rank], after), dist.P2POp(dist.irecv, out, before)])
        for work in works:
            work.wait()
        expect("batch_isend_irecv", out, inputs[before])

    def send_recv(self, size, dtype):
        """Sends from rank to rank, one after the other."""
        inputs = self.inputs(size, dtype)
        if self.rank > 0:
            out = self.spoiled(size, dtype)
            dist.recv(out, self.rank - 1)
            expect("recv", out, inputs[self.rank - 1])
        if self.rank + 1 < self.ranks:
            dist.send(inputs[self.rank], self.rank + 1)

    def subgroup(self, size, dtype):
        """A communicator of the even ranks."""
        members = list(range(0, self.ranks, 2))
        group = dist.new_group(members)
        inputs = self.inputs(size, dtype)
        if self.rank in members:
            mine = inputs[self.rank].clone()
            dist.all_reduce(mine, group=group)
            expect("all_reduce of the even ranks", mine, functools.reduce(torch.add, [inputs[r] for r in members]))
            dist.destroy_process_group(group)

    def graph(self, size, dtype):
        """Captured once, replayed with other inputs."""
        buffer = self.spoiled(size, dtype)
        dist.all_reduce(buffer.clone())  # outside of the capture, so that the communicator exists
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            dist.all_reduce(buffer)
        for _ in range(3):
            inputs = self.inputs(size, dtype)
            buffer.copy_(inputs[self.rank])
            graph.replay()
            torch.cuda.synchronize()
            expect("all_reduce in a CUDA graph", buffer, functools.reduce(torch.add, inputs))


def check_all(rank):
    for dtype in TYPES:
        for size in SIZES:
            for operation in (rank.all_reduce, rank.all_gather, rank.reduce_scatter, rank.all_to_all, rank.uneven_all_to_all,
                              rank.broadcast, rank.ring, rank.send_recv):
                operation(size, dtype)
    rank.subgroup(1000, torch.float32)
    if rank.device.type == "cuda":
        rank.graph(1000, torch.float32)


def choose_device(kind, rank):
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def process(rank, ranks, port, backend, kind):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    device = choose_device(kind, rank)
    if "axccl" in backend:
        import axccl.torch  # noqa: F401  registers the backend
    try:
        dist.init_process_group(backend, rank=rank, world_size=ranks, timeout=TIMEOUT)
        check_all(Rank(rank, ranks, device))
        training = f"{torch_training.check(rank, ranks, device)}, {torch_parallel.check(rank, ranks, device)}"
        if device.type == "cuda":
            torch.cuda.synchronize()
        dist.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # at once: peers may be waiting for this rank, and so would its own clean-up
    library = f"NCCL {torch.cuda.nccl.version()}" if backend == "nccl" else backend
    # In one piece, because others print at the same time.
    sys.stdout.write(f"rank {rank} of {ranks} on {device}: all right, {training}; {library}\n")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    arguments = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(process, (arguments.ranks, port, arguments.backend, arguments.device), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
