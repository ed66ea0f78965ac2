"""This process's ranks of one communicator, with their buffers, and the time of their operations."""

import ctypes
import os
import statistics
import time


class NcclError(Exception):
    """A call of the library failed, or its result is wrong."""


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Library:
    """The library by ctypes. Raises NcclError where a call fails."""

    def __init__(self, path):
        os.environ["AXCCL_DEVICE"] = "cuda"
        self.library = ctypes.CDLL(path)
        self.library.ncclGetLastError.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != 0:
            raise NcclError(f"{name}: {(self.library.ncclGetLastError(None) or b'').decode()}")


class Ranks:
    """`total` ranks, all in this process, or only one of them: `only`; then the others meet it at NCCL_COMM_ID.

    Each has a buffer for input and one for output of `size` bytes, of cuMemAlloc or, with `mapped`, of ncclMemAlloc, which
    other processes can map. Ranks go round the devices; those of one device share its stream.
    """

    def __init__(self, library, driver, total, size, only=None, mapped=False):
        self.nccl, self.driver, self.count, self.size, self.mapped = Library(library).call, driver, total, size, mapped
        self.mine = list(range(total)) if only is None else [only]
        self.devices = [rank % driver.count() for rank in range(total)]
        self.used = sorted({self.devices[rank] for rank in self.mine})
        self.comms = (ctypes.c_void_p * total)()
        self.streams, self.inputs, self.outputs = {}, {}, {}
        if only is None:
            self.nccl("ncclCommInitAll", self.comms, total, (ctypes.c_int * total)(*self.devices))
        else:
            self.meet(only)
        for device in self.used:
            driver.use(device)
            self.streams[device] = driver.stream()
        for rank in self.mine:
            self.inputs[rank], self.outputs[rank] = self.allocate(rank, size), self.allocate(rank, size)
            driver.fill(self.inputs[rank], rank + 1, size // 4)

    def meet(self, rank):
        unique_id, comm = UniqueId(), ctypes.c_void_p()
        self.driver.use(self.devices[rank])
        self.nccl("ncclGetUniqueId", ctypes.byref(unique_id))
        self.nccl("ncclCommInitRank", ctypes.byref(comm), self.count, unique_id, rank)
        self.comms[rank] = comm

    def close(self):
        for rank in self.mine:
            self.release(rank, self.inputs[rank])
            self.release(rank, self.outputs[rank])
            self.nccl("ncclCommDestroy", self.comm(rank))

    def use(self, rank):
        self.driver.use(self.devices[rank])

    def allocate(self, rank, size):
        self.use(rank)
        if not self.mapped:
            return self.driver.allocate(size)
        memory = ctypes.c_void_p()
        self.nccl("ncclMemAlloc", ctypes.byref(memory), ctypes.c_size_t(size))
        return memory.value

    def release(self, rank, memory):
        self.use(rank)
        if self.mapped:
            self.nccl("ncclMemFree", ctypes.c_void_p(memory))
        else:
            self.driver.free(memory)

    def comm(self, rank):
        return ctypes.c_void_p(self.comms[rank])

    def stream(self, rank):
        return self.streams[self.devices[rank]]

    def group(self, call):
        """Runs `call(rank)` for every rank here, in one group."""
        self.nccl("ncclGroupStart")
        for rank in self.mine:
            call(rank)
        self.nccl("ncclGroupEnd")

    def wait(self):
        for device in self.used:
            self.driver.use(device)
            self.driver.synchronize(self.streams[device])

    def spoil_outputs(self):
        for rank in self.mine:
            self.use(rank)
            self.driver.fill(self.outputs[rank], -1, self.size // 4)


def seconds_of(start, wait, iterations, rounds):
    """Seconds of one operation: the median over rounds."""
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
    """Seconds of a copy of `size` bytes on the first device, in pieces that fit the buffers."""
    device = ranks.used[0]
    ranks.driver.use(device)
    mine = [rank for rank in ranks.mine if ranks.devices[rank] == device]

    def start():
        left, turn = size, 0
        while left > 0:
            piece = min(left, ranks.size)
            rank = mine[turn % len(mine)]
            ranks.driver.copy(ranks.outputs[rank], ranks.inputs[rank], piece, ranks.streams[device])
            left, turn = left - piece, turn + 1

    return seconds_of(start, lambda: ranks.driver.synchronize(ranks.streams[device]), iterations, rounds)
