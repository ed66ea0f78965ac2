"""nccl4py's raw bindings (nccl.bindings.nccl) on memory of NumPy, with AxCCL as libnccl.so.2.

  nccl4py_check.py DROPIN        ranks as threads of one process, then as processes

DROPIN is the folder of libnccl.so.2. nccl4py takes the library that is loaded already, so this program starts itself again
with that one preloaded: NVIDIA's package nvidia-nccl, which PyTorch brings, comes before LD_LIBRARY_PATH. Exit status 77: nccl4py is not installed."""

import ctypes
import multiprocessing
import os
import sys
import threading

RANKS, COUNT = 3, 1000


def check(right, what):
    if not right:
        raise AssertionError(what)


def values(rank, count=COUNT):
    return (numpy.arange(count, dtype=numpy.float32) + 1) * (rank + 1)


def run_rank(rank, identity):
    """Every collective once. Calls are asynchronous, as in NCCL: the stream 0 of a thread of host ranks is waited for by
    AxCCL's own function, where a program on GPUs calls cudaStreamSynchronize."""
    comm = nccl.comm_init_rank(RANKS, identity, rank)
    axccl = ctypes.CDLL("libaxccl.so.0")  # loaded with the drop-in
    check((nccl.comm_count(comm), nccl.comm_user_rank(comm)) == (RANKS, rank), "count and rank")
    dtype, add = int(nccl.DataType.Float32), int(nccl.RedOp.Sum)
    every = [values(r) for r in range(RANKS)]
    mine, one = values(rank), numpy.zeros(COUNT, numpy.float32)
    all_of = numpy.zeros(RANKS * COUNT, numpy.float32)
    total = sum(every)

    def right(array, expected, what):
        check(axccl.axcclStreamSynchronize(None) == 0, f"axcclStreamSynchronize after {what}")
        check((array == expected).all(), what)

    nccl.all_reduce(mine.ctypes.data, one.ctypes.data, COUNT, dtype, add, comm, 0)
    right(one, total, "all_reduce")
    nccl.all_reduce(one.ctypes.data, one.ctypes.data, COUNT, dtype, int(nccl.RedOp.Max), comm, 0)
    right(one, total, "all_reduce in place")
    nccl.all_gather(mine.ctypes.data, all_of.ctypes.data, COUNT, dtype, comm, 0)
    right(all_of, numpy.concatenate(every), "all_gather")
    parts = numpy.tile(mine, RANKS)
    nccl.reduce_scatter(parts.ctypes.data, one.ctypes.data, COUNT, dtype, add, comm, 0)
    right(one, total, "reduce_scatter")
    nccl.broadcast(mine.ctypes.data, one.ctypes.data, COUNT, dtype, 1, comm, 0)
    right(one, every[1], "broadcast")
    one[:] = -1
    nccl.reduce(mine.ctypes.data, one.ctypes.data, COUNT, dtype, add, 2, comm, 0)
    right(one, (total if rank == 2 else -1), "reduce")
    nccl.allto_all(parts.ctypes.data, all_of.ctypes.data, COUNT, dtype, comm, 0)
    right(all_of, numpy.concatenate(every), "allto_all")
    nccl.group_start()
    nccl.send(mine.ctypes.data, COUNT, dtype, (rank + 1) % RANKS, comm, 0)
    nccl.recv(one.ctypes.data, COUNT, dtype, (rank - 1) % RANKS, comm, 0)
    nccl.group_end()
    right(one, every[(rank - 1) % RANKS], "send and recv in a group")

    half = nccl.comm_split(comm, rank % 2, rank, 0)
    nccl.all_reduce(mine.ctypes.data, one.ctypes.data, COUNT, dtype, add, half, 0)
    right(one, sum(every[rank % 2::2]), "all_reduce of a split")
    nccl.comm_destroy(half)
    # A wrong call is nccl4py's exception, with the library's text beside it.
    try:
        nccl.all_reduce(mine.ctypes.data, one.ctypes.data, COUNT, 99, add, comm, 0)
    except nccl.NCCLError as error:
        check("invalid argument" in str(error).lower() or "InvalidArgument" in str(error), f"the error is {error}")
        check("ncclAllReduce" in str(nccl.get_last_error(comm)), "the library's text")
    else:
        check(False, "a type that is none was accepted")
    nccl.comm_finalize(comm)
    nccl.comm_destroy(comm)


def as_threads():
    identity, failures = nccl.get_unique_id(), []

    def body(rank):
        try:
            run_rank(rank, identity.ptr)
        except BaseException as error:  # any failure of a rank is one of the check
            failures.append(f"rank {rank}: {error!r}")
            os.write(2, f"rank {rank}: {error!r}\n".encode())
            os._exit(1)  # the others would wait for it

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not failures, failures)


def one_process(rank, pipes):
    identity = nccl.UniqueId()
    if rank == 0:
        identity = nccl.get_unique_id()
        for pipe in pipes:
            pipe.send(bytes(as_bytes(identity)))
    else:
        as_bytes(identity)[:] = numpy.frombuffer(pipes[0].recv(), numpy.uint8)
    run_rank(rank, identity.ptr)


def as_bytes(identity):
    return numpy.ctypeslib.as_array((ctypes.c_uint8 * 128).from_address(identity.ptr))


def as_processes():
    start = multiprocessing.get_context("spawn")
    pairs = [start.Pipe() for _ in range(RANKS - 1)]
    ranks = [start.Process(target=one_process, args=(0, [ours for ours, _ in pairs]))]
    ranks += [start.Process(target=one_process, args=(rank + 1, [theirs])) for rank, (_, theirs) in enumerate(pairs)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    statuses = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    check(statuses == [0] * RANKS, f"the processes end with {statuses}")


try:
    import numpy
    from nccl.bindings import nccl
except ImportError as missing:
    print(f"SKIPPED: nccl4py's raw bindings: {missing} (pip install nccl4py==0.6.0 numpy)")
    sys.exit(77)

if __name__ == "__main__":
    dropin = os.path.abspath(sys.argv[1])
    if os.environ.get("AXCCL_DROPIN") != dropin:
        os.environ["AXCCL_DROPIN"] = dropin
        os.environ["LD_PRELOAD"] = os.path.join(dropin, "libnccl.so.2")
        os.environ.setdefault("AXCCL_DEVICE", "host")
        os.execv(sys.executable, [sys.executable, "-B", *sys.argv])
    path = nccl.get_library_path()
    check(os.path.dirname(os.path.realpath(path)) == os.path.realpath(dropin), f"nccl4py loaded {path}")
    as_threads()
    as_processes()
    print(f"nccl4py: {RANKS} threads and {RANKS} processes, all right, on {path}")
