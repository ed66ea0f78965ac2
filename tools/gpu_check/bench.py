"""Collectives: their time, and copies on the device as a share of it.

As a program (part `benchmark` runs it so, under a time limit): prints rows as JSON. The floor of an operation is the time
of a device-to-device copy that reads and writes as many bytes as the operation must, every input read once and every
output written once, by all ranks of one device together; links between devices are not in it.
All ranks are in this process, or (part `processes`) only one of them.
"""

import argparse
import ctypes
import json
import sys

from gpu_check import cuda
from gpu_check.ranks import NcclError, Ranks, copy_seconds, seconds_of
from gpu_check.steps import Figure, Outcome, Table, parse_size, size_name

FLOAT32, SUM = 7, 0  # ncclFloat32, ncclSum
GRAPH_OPERATIONS = 32
LATENCY_COUNT = 2  # floats: 8 bytes
# The sizes that have bars.
LARGE = 256 << 20
LATENCY_RANKS = 8


class Operation:
    """A collective: its call, its outputs, and the number of bytes whose copy causes as much memory traffic."""

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


def enqueue(ranks, operation, count):
    """One operation of all ranks. `count`: floats of the larger of a rank's buffers."""
    ranks.group(lambda rank: operation.call(ranks, rank, ctypes.c_void_p(ranks.inputs[rank]),
                                            ctypes.c_void_p(ranks.outputs[rank]), count, ranks.comm(rank), ranks.stream(rank)))


def check(ranks, operation, count):
    """The first and the last element of each block of every output."""
    blocks, value = operation.expected(ranks.count, count)
    length = count // blocks if operation.whole_output else count // ranks.count
    for rank in ranks.mine:
        ranks.use(rank)
        for block in range(blocks):
            for at in (block * length, block * length + length - 1):
                found = ranks.driver.read_float(ranks.outputs[rank] + 4 * at)
                if found != value(block):
                    raise NcclError(f"{operation.name} of {4 * count} bytes: rank {rank} has {found} at element {at}, "
                                    f"and {value(block)} is right")


def large(ranks, operations, sizes, iterations, rounds):
    rows = []
    for operation in operations:
        for size in sizes:
            count = size // 4 // ranks.count * ranks.count
            ranks.spoil_outputs()
            taken = seconds_of(lambda: enqueue(ranks, operation, count), ranks.wait, iterations, rounds)
            check(ranks, operation, count)
            row = {"operation": operation.name, "ranks": ranks.count, "gpus": len(ranks.used), "bytes": size,
                   "us": taken * 1e6, "algbw_gbs": size / taken / 1e9}
            if len(ranks.mine) == ranks.count:  # otherwise other processes use the device, too
                floor = copy_seconds(ranks, operation.copied(ranks.count, size) // len(ranks.used), iterations, rounds)
                row.update({"floor_us": floor * 1e6, "share_of_floor": floor / taken})
            rows.append(row)
    return rows


def latency(ranks, rounds):
    """Microseconds of an all-reduce of 8 bytes: each call with its wait; and in a graph, which excludes the cost of Python."""
    operation = OPERATIONS[0]
    ranks.spoil_outputs()

    def one():
        enqueue(ranks, operation, LATENCY_COUNT)
        ranks.wait()

    row = {"ranks": ranks.count, "gpus": len(ranks.used), "called_us": seconds_of(one, ranks.wait, 50, rounds) * 1e6,
           "in_graph_us": None}
    if len(ranks.used) == 1:  # one stream, so one capture
        stream = ranks.streams[ranks.used[0]]

        def all_of_them():
            for _ in range(GRAPH_OPERATIONS):
                enqueue(ranks, operation, LATENCY_COUNT)

        ranks.driver.use(ranks.used[0])
        graph = ranks.driver.capture(stream, all_of_them)
        taken = seconds_of(lambda: ranks.driver.launch_graph(graph, stream), ranks.wait, 5, rounds)
        row["in_graph_us"] = taken / GRAPH_OPERATIONS * 1e6
    check(ranks, operation, LATENCY_COUNT)
    return row


def parse_arguments():
    names = [operation.name for operation in OPERATIONS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--sizes", type=lambda text: [parse_size(size) for size in text.split(",")], required=True)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--operations", default=",".join(names), help="(%(default)s)")
    parser.add_argument("--only", type=int, help="this process has this rank only; others meet it at NCCL_COMM_ID")
    parser.add_argument("--mapped", action="store_true", help="memory of ncclMemAlloc")
    arguments = parser.parse_args()
    arguments.operations = [operation for operation in OPERATIONS if operation.name in arguments.operations.split(",")]
    return arguments


def main():
    arguments = parse_arguments()
    try:
        ranks = Ranks(arguments.library, cuda.Driver(), arguments.ranks, max(arguments.sizes), arguments.only,
                      arguments.mapped)
        found = {"large": large(ranks, arguments.operations, arguments.sizes, arguments.iterations, arguments.rounds)}
        if arguments.only is None:
            found["latency"] = latency(ranks, arguments.rounds)
        ranks.close()
    except (NcclError, cuda.CudaError) as error:
        print(error)
        return 1
    print(json.dumps(found))
    return 0


# ---- the part ----

def command(setup, ranks, sizes, repeats, *more, module="bench", **options):
    """Runs a module that measures. `repeats`: iterations and rounds."""
    return setup.python(module, "--library", setup.library(), "--ranks", str(ranks), "--sizes", ",".join(map(str, sizes)),
                        "--iterations", str(repeats[0]), "--rounds", str(repeats[1]), *more, **options)


def sizes_up_to(largest):
    """Four sizes, or those of them that are not tiny."""
    return [size for size in (largest >> shift for shift in (8, 4, 2, 0)) if size >= 1024]


def rank_counts(gpus):
    """One rank for each GPU, several that share each, and 8."""
    return sorted({gpus, 2 * gpus, 4 * gpus, 8} - {1})


def large_figures(rows, software):
    """The figures of the sizes that have bars; on the software GPU, of all sizes."""
    least = 0 if software else LARGE
    return [Figure("floor of " + row["operation"], row["share_of_floor"], f"{row['ranks']} ranks, {size_name(row['bytes'])}")
            for row in rows if row["bytes"] >= least]


def latency_figures(rows):
    return [Figure("8 bytes in a graph", row["in_graph_us"], f"{row['ranks']} ranks") for row in rows
            if row["ranks"] == LATENCY_RANKS and row["in_graph_us"] is not None]


def tables(rows, latencies):
    return [
        Table("Collectives, float sum; floor: a device-to-device copy of as many bytes", [
            "operation", "ranks", "GPUs", "size", "us", "algbw GB/s", "floor us", "floor / us"], [
            [r["operation"], r["ranks"], r["gpus"], size_name(r["bytes"]), r["us"], r["algbw_gbs"], r["floor_us"],
             r["share_of_floor"]] for r in rows]),
        Table("All-reduce of 8 bytes", ["ranks", "GPUs", "called and waited for, us", "in a CUDA graph, us"], [
            [r["ranks"], r["gpus"], r["called_us"], r["in_graph_us"]] for r in latencies])]


def benchmark(setup, sizes, repeats):
    """The part."""
    outcome = Outcome("benchmark")
    rows, latencies = [], []
    smallest = min(gpu["memory"] for gpu in setup.gpus)
    for ranks in rank_counts(len(setup.gpus)):
        share = -(-ranks // len(setup.gpus))
        fitting = [size for size in sizes if 2 * size * share <= smallest * 0.8]
        if not fitting:
            outcome.notes.append(f"{ranks} ranks: the buffers do not fit into the memory of a GPU")
            continue
        run = setup.run(command(setup, ranks, fitting, repeats), 600, setup.environment())
        setup.keep(f"bench-{ranks}", run)
        found = setup.must(f"the benchmark of {ranks} ranks", run).json()
        rows += found["large"]
        latencies.append(found["latency"])
    outcome.tables = tables(rows, latencies)
    outcome.figures = large_figures(rows, setup.software) + latency_figures(latencies)
    best = max((r["share_of_floor"] for r in rows if r["operation"] == "all_reduce"), default=None)
    outcome.summary = "nothing measured" if best is None else f"all_reduce: at best {best:.2f} of the copy floor"
    if setup.software:
        outcome.notes.append("On the software GPU times mean nothing.")
    return outcome


if __name__ == "__main__":
    sys.exit(main())
