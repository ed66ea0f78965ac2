#!/usr/bin/env python3
"""What a call costs from Python beyond what it costs from C.

    PYTHONPATH=build/python python3 perf/python/call_perf.py

Two processes make all-reduces of float32 on one communicator and one pair of arrays, in turns: from Python with `out`,
from Python with a new result, and from C (calls.c). Printed are medians of the rounds, in microseconds for each call;
"beyond C" is the median of the differences within rounds.
"""

import argparse
import ctypes
import multiprocessing
import statistics
import time
from pathlib import Path

import numpy as np

import axccl


def _from_c(comm, x, out):
    library = ctypes.CDLL(str(Path(axccl.__file__).parents[1] / "calls.so"))
    library.MakeStream.restype = ctypes.c_void_p
    stream = library.MakeStream(ctypes.c_void_p(comm.handle))
    pointer = ctypes.c_void_p

    def run(calls):
        result = library.MakeCalls(pointer(comm.handle), pointer(stream), pointer(x.ctypes.data),
                                   pointer(out.ctypes.data), ctypes.c_int64(x.size), calls)
        assert result == 0, result
    return run


def measure(rank, meeting, options, results):
    comm = axccl.Communicator(rank, 2, meeting)
    for size in options.bytes:
        make = axccl.empty if options.reachable else np.empty
        x, out = make(size // 4, np.float32), make(size // 4, np.float32)
        x[...] = 1

        def with_out(calls):
            for _ in range(calls):
                comm.all_reduce(x, out=out)

        def with_result(calls):
            for _ in range(calls):
                comm.all_reduce(x)
        ways = {"C": _from_c(comm, x, out), "Python, out": with_out, "Python, new result": with_result}
        times = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, way in ways.items():
                comm.barrier()
                way(options.calls // 10)  # the ranks come to step
                begin = time.perf_counter()
                way(options.calls)
                times[name].append((time.perf_counter() - begin) / options.calls * 1e6)
        if rank == 0:
            results.put((size, times))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, nargs="+", default=[8, 4096, 65536])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--reachable", action="store_true", help="arrays of axccl.empty")
    options = parser.parse_args()
    context = multiprocessing.get_context("fork")
    meeting, results = axccl.unique_id(), context.Queue()
    other = context.Process(target=measure, args=(1, meeting, options, results))
    other.start()
    measure(0, meeting, options, results)
    other.join()
    print("   bytes  way                  median us   least    most   beyond C")
    for _ in options.bytes:
        size, times = results.get()
        for name, values in times.items():
            beyond = statistics.median(value - c for value, c in zip(values, times["C"]))
            median = statistics.median(values)
            print(f"{size:8}  {name:20} {median:9.2f} {min(values):7.2f} {max(values):7.2f} {beyond:10.2f}")


if __name__ == "__main__":
    main()
