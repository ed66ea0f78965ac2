"""Collectives of ranks in this process: time, and the share of what copies on the device need.

As a program (part `benchmark` runs it so, under a time limit): prints rows as JSON. The floor of an operation is the time
of a device-to-device copy that reads and writes as many bytes as the operation must, every input read once and every
output written once, by all ranks of one device together; links between devices are not in it.
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import time

from gpu_check import cuda
from gpu_check.steps import LeftOut, Outcome, Table, parse_size, size_name

FLOAT32, SUM = 7, 0  # ncclFloat32, ncclSum
GRAPH_OPERATIONS = 32
LATENCY_COUNT = 2  # floats: 8 bytes


class NcclError(Exception):
    """A call of the library failed."""


class Ranks:
    """Ranks of this process with a buffer for input and one for output each. Those of one device share its stream."""

    def __init__(self, library, driver, ranks, size):
        self.library, self.driver, self.count = ctypes.CDLL(library), driver, ranks
        self.size = size
        self.devices = [rank % driver.count() for rank in range(ranks)]
        self.used = sorted(set(self.devices))
        self.comms = (ctypes.c_void_p * ranks)()
        self.nccl("ncclCommInitAll", self.comms, ranks, (ctypes.c_int * ranks)(*self.devices))
        self.streams = {}
        for device in self.used:
            driver.use(device)
            self.streams[device] = driver.stream()
        self.inputs, self.outputs = [], []
        for rank, device in enumerate(self.devices):
            driver.use(device)
            self.inputs.append(driver.allocate(size))
            self.outputs.append(driver.allocate(size))
            driver.fill(self.inputs[rank], rank + 1, size // 4)

    def close(self):
        for rank, device in enumerate(self.devices):
            self.driver.use(device)
            self.driver.free(self.inputs[rank])
            self.driver.free(self.outputs[rank])
            self.nccl("ncclCommDestroy", ctypes.c_void_p(self.comms[rank]))

    def nccl(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != 0:
            self.library.ncclGetLastError.restype = ctypes.c_char_p
            raise NcclError(f"{name}: {(self.library.ncclGetLastError(None) or b'').decode()}")

    def start(self, operation, count):
        """Enqueues one operation of all ranks. `count`: floats of the larger of a rank's buffers."""
        self.nccl("ncclGroupStart")
        for rank, device in enumerate(self.devices):
            operation.call(self, rank, ctypes.c_void_p(self.inputs[rank]), ctypes.c_void_p(self.outputs[rank]), count,
                           ctypes.c_void_p(self.comms[rank]), self.streams[device])
        self.nccl("ncclGroupEnd")

    def wait(self):
        for device in self.used:
            self.driver.use(device)
            self.driver.synchronize(self.streams[device])

    def spoil_outputs(self):
        for rank, device in enumerate(self.devices):
            self.driver.use(device)
            self.driver.fill(self.outputs[rank], -1, self.size // 4)

    def check(self, operation, count):
        """The first and the last element of each block of every output."""
        blocks, value = operation.expected(self.count, count)
        length = count // blocks if operation.whole_output else count // self.count
        for rank, device in enumerate(self.devices):
            self.driver.use(device)
            for block in range(blocks):
                for at in (block * length, block * length + length - 1):
                    found = self.driver.read_float(self.outputs[rank] + 4 * at)
                    if found != value(block):
                        raise NcclError(f"{operation.name} of {4 * count} bytes: rank {rank} has {found} at element {at}, "
                                        f"and {value(block)} is right")


class Operation:
    """A collective, how it is called, what its outputs are and how many bytes of a copy cost as much memory traffic."""

    def __init__(self, name, call, expected, copied, whole_output=True):
        self.name, self.call, self.expected, self.copied = name, call, expected, copied
        self.whole_output = whole_output


def sized(count):
    return ctypes.c_size_t(count)


def all_reduce(ranks, rank, send, recv, count, comm, stream):
    ranks.nccl("ncclAllReduce", send, recv, sized(count), FLOAT32, SUM, comm, stream)


def all_gather(ranks, rank, send, recv, count, comm, stream):
    ranks.nccl("ncclAllGather", send, recv, sized(count // ranks.count), FLOAT32, comm, stream)


def reduce_scatter(ranks, rank, send, recv, count, comm, stream):
    ranks.nccl("ncclReduceScatter", send, recv, sized(count // ranks.count), FLOAT32, SUM, comm, stream)


def all_to_all(ranks, rank, send, recv, count, comm, stream):
    ranks.nccl("ncclAlltoAll", send, recv, sized(count // ranks.count), FLOAT32, comm, stream)


def total(ranks):
    return ranks * (ranks + 1) / 2


OPERATIONS = [
    Operation("all_reduce", all_reduce, lambda n, count: (1, lambda block: total(n)), lambda n, size: n * size),
    Operation("all_gather", all_gather, lambda n, count: (n, lambda block: block + 1.0), lambda n, size: (n + 1) * size // 2),
    Operation("reduce_scatter", reduce_scatter, lambda n, count: (1, lambda block: total(n)),
              lambda n, size: (n + 1) * size // 2, whole_output=False),
    Operation("alltoall", all_to_all, lambda n, count: (n, lambda block: block + 1.0), lambda n, size: n * size),
]


def seconds_of(start, wait, iterations, rounds):
    """Of one: the median over rounds."""
    start()
    wait()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(iterations):
            start()
        wait()
        times.append((time.perf_counter() - began) / iterations)
    return statistics.median(times)


def copy_seconds(ranks, size, iterations, rounds):
    """Of a copy of `size` bytes on the first device, in pieces that fit the buffers."""
    device = ranks.used[0]
    ranks.driver.use(device)
    mine = [i for i, d in enumerate(ranks.devices) if d == device]

    def start():
        left, turn = size, 0
        while left > 0:
            piece = min(left, ranks.size)
            rank = mine[turn % len(mine)]
            ranks.driver.copy(ranks.outputs[rank], ranks.inputs[rank], piece, ranks.streams[device])
            left, turn = left - piece, turn + 1

    return seconds_of(start, lambda: ranks.driver.synchronize(ranks.streams[device]), iterations, rounds)


def large(ranks, sizes, iterations, rounds):
    rows = []
    for operation in OPERATIONS:
        for size in sizes:
            count = size // 4 // ranks.count * ranks.count
            ranks.spoil_outputs()
            taken = seconds_of(lambda: ranks.start(operation, count), ranks.wait, iterations, rounds)
            ranks.check(operation, count)
            floor = copy_seconds(ranks, operation.copied(ranks.count, size) // len(ranks.used), iterations, rounds)
            rows.append({"operation": operation.name, "ranks": ranks.count, "gpus": len(ranks.used), "bytes": size,
                         "us": taken * 1e6, "algbw_gbs": size / taken / 1e9, "floor_us": floor * 1e6,
                         "share_of_floor": floor / taken})
    return rows


def latency(ranks, rounds):
    """Microseconds of an all-reduce of 8 bytes: called and waited for one by one; and in a graph, where Python costs nothing."""
    operation = OPERATIONS[0]
    ranks.spoil_outputs()

    def one():
        ranks.start(operation, LATENCY_COUNT)
        ranks.wait()

    row = {"ranks": ranks.count, "gpus": len(ranks.used), "called_us": seconds_of(one, ranks.wait, 50, rounds) * 1e6,
           "in_graph_us": None}
    if len(ranks.used) == 1:  # one stream, so one capture
        stream = ranks.streams[ranks.used[0]]

        def all_of_them():
            for _ in range(GRAPH_OPERATIONS):
                ranks.start(operation, LATENCY_COUNT)

        ranks.driver.use(ranks.used[0])
        graph = ranks.driver.capture(stream, all_of_them)
        taken = seconds_of(lambda: ranks.driver.launch_graph(graph, stream), ranks.wait, 5, rounds)
        row["in_graph_us"] = taken / GRAPH_OPERATIONS * 1e6
    ranks.check(operation, LATENCY_COUNT)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sizes = [parse_size(text) for text in arguments.sizes.split(",")]
    os.environ["AXCCL_DEVICE"] = "cuda"
    try:
        ranks = Ranks(arguments.library, cuda.Driver(), arguments.ranks, max(sizes))
        rows = large(ranks, sizes, arguments.iterations, arguments.rounds)
        found = {"large": rows, "latency": latency(ranks, arguments.rounds)}
        ranks.close()
    except (NcclError, cuda.CudaError) as error:
        print(error)
        return 1
    print(json.dumps(found))
    return 0


# ---- the part ----

def rank_counts(gpus):
    """One rank for each GPU, and several that share each."""
    return sorted({gpus, 2 * gpus, 4 * gpus} - {1})


def benchmark(setup, sizes, iterations, rounds):
    """The part."""
    library = os.path.join(setup.build, "libaxccl.so")
    if not os.path.exists(library):
        raise LeftOut(f"there is no {library}")
    outcome = Outcome("benchmark")
    rows, latencies = [], []
    smallest = min(gpu["memory"] for gpu in setup.gpus)
    for ranks in rank_counts(len(setup.gpus)):
        share = -(-ranks // len(setup.gpus))
        fitting = [size for size in sizes if 2 * size * share <= smallest * 0.8]
        if not fitting:
            outcome.notes.append(f"{ranks} ranks: the buffers do not fit into the memory of a GPU")
            continue
        run = setup.run(setup.python("bench", "--library", library, "--ranks", str(ranks), "--sizes",
                                     ",".join(map(str, fitting)), "--iterations", str(iterations), "--rounds", str(rounds)),
                        600, setup.environment())
        setup.keep(f"bench-{ranks}", run)
        found = json.loads(setup.must(f"the benchmark of {ranks} ranks", run).output.strip().splitlines()[-1])
        rows += found["large"]
        latencies.append(found["latency"])
    outcome.tables.append(Table("Collectives, float sum; floor: a device-to-device copy of as many bytes", [
        "operation", "ranks", "GPUs", "size", "us", "algbw GB/s", "floor us", "floor / us"], [
            [r["operation"], r["ranks"], r["gpus"], size_name(r["bytes"]), r["us"], r["algbw_gbs"], r["floor_us"],
             r["share_of_floor"]] for r in rows]))
    outcome.tables.append(Table("All-reduce of 8 bytes", ["ranks", "GPUs", "called and waited for, us", "in a CUDA graph, us"], [
        [r["ranks"], r["gpus"], r["called_us"], r["in_graph_us"]] for r in latencies]))
    best = max((r["share_of_floor"] for r in rows if r["operation"] == "all_reduce"), default=None)
    outcome.summary = "nothing measured" if best is None else f"all_reduce: at best {best:.2f} of the copy floor"
    if setup.software:
        outcome.notes.append("On the software GPU times mean nothing.")
    return outcome


if __name__ == "__main__":
    sys.exit(main())
