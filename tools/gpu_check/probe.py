"""What the library takes for granted of the driver, asked of the driver itself: which of its calls wait for a kernel that
waits, which streams are queued behind it, and how long accesses of memory and launches take. As a program: prints JSON.

A kernel of the library waits for those of other ranks, which the same process may be about to launch. So no call that the
library makes meanwhile may wait for running kernels; CUDA promises that of none, and allows some to wait.
"""

import ctypes
import json
import os
import subprocess
import sys
import time

from gpu_check.cuda import CudaError, Driver
from gpu_check.steps import Failed, Outcome, Table

# CU_DEVICE_ATTRIBUTE_*
ATTRIBUTES = {"reads pageable host memory": 88, "managed memory beside kernels": 89, "memory pools": 115,
              "virtual memory management": 102, "files of it": 103, "fabric handles of it": 128, "multicast objects": 132,
              "GPUDirect RDMA": 116, "GPUDirect RDMA of virtual memory": 110, "copy engines": 40,
              "shared memory of a block, bytes": 97, "L2 cache, bytes": 38}
SPIN_SECONDS = 1.0   # a kernel waits no longer
MORE_STREAMS = 40
ACCESSES = ["relaxed load", "acquiring load", "weak load", "releasing store", "atomic addition"]
PORTABLE_MAPPED = 1 | 2  # CU_MEMHOSTALLOC_ and CU_MEMHOSTREGISTER_
NO_TIMING = 2            # CU_EVENT_DISABLE_TIMING
BUFFER_ID, MEMORY_BLOCK_ID = 7, 20  # CU_POINTER_ATTRIBUTE_*
LAZY_PEER_ACCESS = 1     # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
POSIX_FILE, PINNED, ON_DEVICE, READ_WRITE = 1, 1, 1, 3


class Location(ctypes.Structure):
    """CUmemLocation"""
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp"""
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("windows", ctypes.c_void_p),
                ("flags", ctypes.c_uint64)]


class Access(ctypes.Structure):
    """CUmemAccessDesc"""
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""
    _fields_ = [("reserved", ctypes.c_ubyte * 64)]


def address(value):
    return ctypes.c_uint64(value)


def size(value):
    return ctypes.c_size_t(value)


class Probe:
    def __init__(self, device=0):
        self.driver, self.device = Driver(), device
        self.driver.use(device)
        with open(os.path.join(os.path.dirname(os.path.realpath(__file__)), "probe.ptx"), "rb") as file:
            self.code = file.read() + b"\0"
        module = self.load()
        self.spin, self.tiny, self.latency = (self.function(module, name) for name in ("spin", "tiny", "latency"))
        self.host = self.pinned(4096)
        ctypes.memset(self.host, 0, 4096)
        self.flag, self.started = (ctypes.c_uint.from_address(self.host + at) for at in (0, 64))
        self.memory = self.driver.allocate(1 << 20)
        self.waits, self.other = self.driver.stream(), self.driver.stream()
        self.event = self.new_event()
        for kernel in (self.spin, self.tiny):  # the first launch of each is over
            self.launch(kernel, self.waits, address(self.memory), address(self.memory), address(0))
        self.driver.synchronize(self.waits)

    def call(self, name, *arguments):
        self.driver.call(name, *arguments)

    def load(self):
        return ctypes.c_void_p(self.driver.get("cuModuleLoadData", ctypes.c_void_p, self.code))

    def function(self, module, name):
        return ctypes.c_void_p(self.driver.get("cuModuleGetFunction", ctypes.c_void_p, module, name.encode()))

    def pinned(self, bytes_):
        return self.driver.get("cuMemHostAlloc", ctypes.c_void_p, size(bytes_), PORTABLE_MAPPED)

    def new_event(self):
        return ctypes.c_void_p(self.driver.get("cuEventCreate", ctypes.c_void_p, NO_TIMING))

    def launch(self, function, stream, *values):
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        self.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, None)

    def begin_waiting(self, seconds):
        self.flag.value = self.started.value = 0
        self.launch(self.spin, self.waits, address(self.host), address(self.host + 64), address(int(seconds * 1e9)))
        limit = time.monotonic() + 10
        while self.started.value == 0:
            if time.monotonic() > limit:
                raise CudaError("a kernel that was launched has not begun after 10 s")
            time.sleep(0.0001)

    def end_waiting(self):
        self.flag.value = 1
        self.driver.synchronize(self.waits)

    def is_idle(self, stream):
        return self.driver.library.cuStreamQuery(stream) == 0

    # ---- calls ----

    def new_virtual_memory(self):
        properties = Properties(PINNED, POSIX_FILE, Location(ON_DEVICE, self.device))
        unit = self.driver.get("cuMemGetAllocationGranularity", ctypes.c_size_t, ctypes.byref(properties), 1)
        handle = self.driver.get("cuMemCreate", ctypes.c_uint64, size(unit), ctypes.byref(properties), ctypes.c_ulonglong(0))
        return properties, unit, handle

    def reserve(self, bytes_):
        return self.driver.get("cuMemAddressReserve", ctypes.c_uint64, size(bytes_), size(0), address(0), ctypes.c_ulonglong(0))

    def map_virtual_memory(self, properties, unit, handle, place=None):
        place = place or self.reserve(unit)
        self.call("cuMemMap", address(place), size(unit), size(0), address(handle), ctypes.c_ulonglong(0))
        access = Access(properties.location, READ_WRITE)
        self.call("cuMemSetAccess", address(place), size(unit), ctypes.byref(access), size(1))

    def open_file(self, file):
        return self.driver.get("cuMemImportFromShareableHandle", ctypes.c_uint64, ctypes.c_void_p(file), POSIX_FILE)

    def open_memory_of(self, lender):
        """What opens the memory of another process; null where that cannot be done."""
        try:
            handle = IpcHandle.from_buffer_copy(bytes.fromhex(lender.stdout.readline().strip()))
            opened = self.driver.get("cuIpcOpenMemHandle_v2", ctypes.c_uint64, handle, LAZY_PEER_ACCESS)
            self.call("cuIpcCloseMemHandle", address(opened))
        except (CudaError, ValueError):
            return None
        return lambda: self.driver.get("cuIpcOpenMemHandle_v2", ctypes.c_uint64, handle, LAZY_PEER_ACCESS)

    def used_beside_kernels(self, lender):
        """Calls that the library makes while kernels wait for this process: (what it is, call)."""
        driver, memory, other = self.driver, address(self.memory), self.other
        freed = driver.allocate(1 << 20)
        pinned = self.pinned(4096)

        def set_and_wait():
            self.call("cuMemsetD8Async", memory, ctypes.c_ubyte(0), size(4096), other)
            driver.synchronize(other)

        def copy_and_wait(to, source):
            self.call("cuMemcpyAsync", address(to), address(source), size(4096), other)
            driver.synchronize(other)

        def free_in_order():
            self.call("cuMemFreeAsync", address(freed), other)
            driver.synchronize(other)

        def launch_and_wait():
            self.launch(self.tiny, other, memory)
            driver.synchronize(other)

        def ask_whether_it_was_reset():
            self.call("cuDevicePrimaryCtxGetState", self.device, ctypes.byref(ctypes.c_uint()), ctypes.byref(ctypes.c_int()))
            self.call("cuCtxGetId", None, ctypes.byref(ctypes.c_ulonglong()))

        def ask_for_identity():
            self.call("cuPointerGetAttribute", ctypes.byref(ctypes.c_ulonglong()), BUFFER_ID, memory)

        found = [
            ("a launch on another stream, and its end", launch_and_wait),
            ("cuEventRecord", lambda: self.call("cuEventRecord", self.event, other)),
            ("cuStreamWaitEvent", lambda: self.call("cuStreamWaitEvent", other, self.event, 0)),
            ("cuEventQuery", lambda: driver.library.cuEventQuery(self.event)),
            ("cuStreamQuery", lambda: self.is_idle(self.waits)),
            ("cuStreamGetCtx", lambda: self.call("cuStreamGetCtx", other, ctypes.byref(ctypes.c_void_p()))),
            ("the number of a context", ask_whether_it_was_reset),
            ("the number of an allocation", ask_for_identity),
            ("a copy from pinned memory, and its end", lambda: copy_and_wait(self.memory, pinned)),
            ("a copy to pinned memory, and its end", lambda: copy_and_wait(pinned, self.memory)),
            ("setting memory, and its end", set_and_wait),
            ("cuEventCreate", self.new_event)]
        if self.attribute(ATTRIBUTES["memory pools"]):
            found.append(("cuMemFreeAsync of memory of cuMemAlloc, and its end", free_in_order))
        if self.attribute(ATTRIBUTES["virtual memory management"]):
            virtual = self.new_virtual_memory()
            found.append(("mapping of virtual memory", lambda: self.map_virtual_memory(*virtual)))
            file = self.driver.get("cuMemExportToShareableHandle", ctypes.c_int, address(self.new_virtual_memory()[2]),
                                   POSIX_FILE, ctypes.c_ulonglong(0))
            found.append(("opening of virtual memory by its file", lambda: self.open_file(file)))
        open_memory = self.open_memory_of(lender)
        if open_memory is not None:
            found.append(("opening of memory of another process", open_memory))
        return found

    def used_before_kernels(self):
        """Calls that the library avoids then, because CUDA allows them to wait."""
        driver = self.driver
        freed, unpinned, module = driver.allocate(64 << 20), self.pinned(4096), self.load()
        page = ctypes.create_string_buffer(3 * 4096)
        aligned = (ctypes.addressof(page) + 4095) // 4096 * 4096
        pageable = ctypes.create_string_buffer(4096)
        found = [
            ("cuMemAlloc of 4 KiB", lambda: driver.allocate(4096)),
            ("cuMemAlloc of 64 MiB", lambda: driver.allocate(64 << 20)),
            ("cuMemFree", lambda: driver.free(freed)),
            ("cuMemHostAlloc", lambda: self.pinned(4096)),
            ("cuMemFreeHost", lambda: self.call("cuMemFreeHost", ctypes.c_void_p(unpinned))),
            ("cuMemHostRegister", lambda: self.call("cuMemHostRegister_v2", ctypes.c_void_p(aligned), size(4096),
                                                    PORTABLE_MAPPED)),
            ("a copy from pageable memory", lambda: self.call("cuMemcpyHtoDAsync_v2", address(self.memory), pageable,
                                                              size(4096), self.other)),
            ("cuStreamCreate", driver.stream),
            ("cuModuleLoadData", self.load),
            ("the first launch of a function", lambda: self.launch(self.function(module, "other"), self.other,
                                                                    address(self.memory)))]
        if self.attribute(ATTRIBUTES["virtual memory management"]):
            found.append(("cuMemCreate", self.new_virtual_memory))
        self.kept = page, pageable  # what is pinned stays
        return found

    def look_whether_they_wait(self, calls):
        """Rows of (call, milliseconds, whether it waited for the kernel, error or null)."""
        rows = []
        for name, call in calls:
            self.begin_waiting(SPIN_SECONDS)
            error, begin = None, time.monotonic()
            try:
                call()
            except CudaError as reason:
                error = str(reason)
            took = time.monotonic() - begin
            # A kernel that runs for so long has ended by itself.
            waited = took > 0.9 * SPIN_SECONDS
            self.end_waiting()
            rows.append((name, 1000 * took, waited, error))
        return rows

    # ---- the rest ----

    def numbers(self, place):
        """What CUDA says of the memory at an address: its number of the allocation, and that of the object."""
        found = []
        for which in (BUFFER_ID, MEMORY_BLOCK_ID):
            value = ctypes.c_ulonglong(0)
            known = self.driver.library.cuPointerGetAttribute(ctypes.byref(value), which, address(place)) == 0
            found.append(value.value if known else None)
        return found

    def exchanged(self):
        """Of virtual memory that other memory replaces at its addresses: whether its numbers change, null if unknown."""
        if not self.attribute(ATTRIBUTES["virtual memory management"]):
            return {}
        seen, place = [], None
        for _ in range(2):
            properties, unit, handle = self.new_virtual_memory()
            place = place or self.reserve(unit)
            self.map_virtual_memory(properties, unit, handle, place)
            seen.append(self.numbers(place))
            self.call("cuMemUnmap", address(place), size(unit))
            self.call("cuMemRelease", address(handle))
        names = ("CUDA's number of the allocation (BUFFER_ID)", "that of the object (MEMORY_BLOCK_ID)")
        return {name: None if None in pair else pair[0] != pair[1] for name, pair in zip(names, zip(*seen))}

    def attribute(self, which):
        device = self.driver.get("cuDeviceGet", ctypes.c_int, self.device)
        value = ctypes.c_int(0)
        known = self.driver.library.cuDeviceGetAttribute(ctypes.byref(value), which, device) == 0
        return value.value if known else 0

    def queued_streams(self):
        """The numbers of further streams whose kernels are queued behind one that waits on another stream."""
        streams = [self.driver.stream() for _ in range(MORE_STREAMS)]
        self.begin_waiting(10)
        for stream in streams:
            self.launch(self.tiny, stream, address(self.memory))
        limit = time.monotonic() + 0.5
        while time.monotonic() < limit and not all(map(self.is_idle, streams)):
            time.sleep(0.001)
        queued = [i for i, stream in enumerate(streams) if not self.is_idle(stream)]
        self.end_waiting()
        for stream in streams:
            self.driver.synchronize(stream)
        return queued

    def latencies(self, times):
        """Nanoseconds of each of ACCESSES, by where the word is."""
        found = {}
        self.call("cuMemsetD8Async", address(self.memory), ctypes.c_ubyte(0), size(4096), self.waits)
        for where, word in (("device", self.memory), ("pinned host memory", self.host + 128)):
            self.launch(self.latency, self.waits, address(word), address(self.host + 1024), ctypes.c_uint(times))
            self.driver.synchronize(self.waits)
            took = (ctypes.c_uint64 * len(ACCESSES)).from_address(self.host + 1024)
            found[where] = [value / times for value in took]
        return found

    def launches(self, times):
        """Median microseconds of a launch, and of a launch until its end has been seen."""
        called, ended = [], []
        for _ in range(times):
            begin = time.perf_counter()
            self.launch(self.tiny, self.waits, address(self.memory))
            called.append(time.perf_counter() - begin)
            self.driver.synchronize(self.waits)
            ended.append(time.perf_counter() - begin)
        return [1e6 * sorted(values)[times // 2] for values in (called, ended)]

    def all(self, times, lender):
        return {"attributes": {name: self.attribute(number) for name, number in ATTRIBUTES.items()},
                "beside": self.look_whether_they_wait(self.used_beside_kernels(lender)),
                "before": self.look_whether_they_wait(self.used_before_kernels()),
                "connections": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "unset"), "queued": self.queued_streams(),
                "exchanged": self.exchanged(),
                "latencies": self.latencies(times), "launches": self.launches(times)}


def rows_of_calls(rows):
    return [[name, round(took, 3), error or ("waits" if waited else "does not wait")] for name, took, waited, error in rows]


def outcome_of(found):
    """Fails if a call waits, or fails, that the library makes while kernels wait, or if memory is taken for other memory."""
    outcome = Outcome("driver probe")
    outcome.tables = [
        Table("The device", ["attribute", "value"], [[name, value] for name, value in found["attributes"].items()]),
        Table("Calls that the library makes while a kernel waits", ["call", "ms", "it"], rows_of_calls(found["beside"])),
        Table("Calls that it does not make then", ["call", "ms", "it"], rows_of_calls(found["before"])),
        Table("Other virtual memory at the same addresses", ["number", "it"], [
            [name, {None: "unknown", True: "changes", False: "stays"}[changes]] for name, changes in found["exchanged"].items()]),
        Table("Accesses that follow each other", ["ns", *found["latencies"]], [
            [name, *(round(values[i], 1) for values in found["latencies"].values())] for i, name in enumerate(ACCESSES)]),
        Table("A launch from Python", ["us", "median"], [
            [name, round(value, 1)] for name, value in zip(("of the call", "until its end is seen"), found["launches"])])]
    queued = found["queued"]
    outcome.notes.append(f"CUDA_DEVICE_MAX_CONNECTIONS {found['connections']}: of {MORE_STREAMS} further streams, those with "
                         f"these numbers are queued behind a kernel that waits: {queued or 'none'}")
    wrong = [name for name, _, waited, error in found["beside"] if waited or error]
    if wrong:
        outcome.state = "failed"
    waiting = [name for name, _, waited, _ in found["before"] if waited]
    if found["exchanged"] and not any(found["exchanged"].values()):
        outcome.state = "failed"
        outcome.notes.append("CUDA gives virtual memory the numbers of other memory that was at its addresses: ranks of other "
                             "processes go on with that; programs must not exchange memory (PyTorch: expandable_segments:False)")
    outcome.summary = (f"the library relies on these not to wait for kernels, and they do, or fail: {', '.join(wrong)}" if wrong
                       else f"wait for kernels: {', '.join(waiting) or 'none of the calls'}; {len(queued)} streams are queued")
    return outcome


def check(setup):
    """The part."""
    run = setup.run(command(setup.software, setup.python("probe")), 90, setup.environment())
    setup.keep("driver-probe", run)
    return outcome_of(setup.must("driver probe", run).json())


def command(software, program):
    return [*program, "20" if software else "2000"]


def lend():
    """Prints the handle of some memory, nothing if there is none, and keeps it until the end of the standard input."""
    try:
        driver, handle = Driver(), IpcHandle()
        driver.use(0)
        driver.call("cuIpcGetMemHandle", ctypes.byref(handle), address(driver.allocate(1 << 20)))
        print(bytes(handle.reserved).hex(), flush=True)
    except CudaError:
        print(flush=True)
    sys.stdin.read()


def main():
    parent = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    text = f"import sys; sys.path.insert(0, {parent!r}); from gpu_check.probe import lend; lend()"
    try:
        with subprocess.Popen([sys.executable, "-B", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              universal_newlines=True) as lender:
            print(json.dumps(Probe().all(int(sys.argv[1]), lender)))
    except CudaError as reason:
        print(reason)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
