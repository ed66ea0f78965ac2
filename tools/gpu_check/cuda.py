"""The part of the CUDA driver API that gpu-check needs, by ctypes. As a program: prints the GPUs as JSON."""

import ctypes
import json
import sys

MULTIPROCESSORS, MAJOR, MINOR = 16, 75, 76  # CU_DEVICE_ATTRIBUTE_*
NON_BLOCKING = 1
CAPTURE_RELAXED = 2
MEMORY_DEVICE = 2  # CU_MEMORYTYPE_DEVICE


class CudaError(Exception):
    """A call of the driver failed."""


class Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D"""
    _fields_ = [("source_x", ctypes.c_size_t), ("source_y", ctypes.c_size_t), ("source_type", ctypes.c_int),
                ("source_host", ctypes.c_void_p), ("source_device", ctypes.c_uint64), ("source_array", ctypes.c_void_p),
                ("source_pitch", ctypes.c_size_t), ("to_x", ctypes.c_size_t), ("to_y", ctypes.c_size_t),
                ("to_type", ctypes.c_int), ("to_host", ctypes.c_void_p), ("to_device", ctypes.c_uint64),
                ("to_array", ctypes.c_void_p), ("to_pitch", ctypes.c_size_t), ("width", ctypes.c_size_t),
                ("height", ctypes.c_size_t)]


class Driver:
    def __init__(self):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"{error}; is the driver installed?") from error
        self.call("cuInit", 0)

    def call(self, name, *arguments):
        """Raises CudaError unless the function returns 0. Integers are passed as C int: wrap wider ones."""
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(result, ctypes.byref(text))
            raise CudaError(f"{name} returned {result} ({(text.value or b'?').decode()})")

    def get(self, name, kind, *arguments):
        """The value that a function stores through its first argument."""
        value = kind()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def count(self):
        return self.get("cuDeviceGetCount", ctypes.c_int)

    def describe(self, ordinal):
        device = self.get("cuDeviceGet", ctypes.c_int, ordinal)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, device)
        attribute = lambda which: self.get("cuDeviceGetAttribute", ctypes.c_int, which, device)
        return {"name": name.value.decode(), "capability": f"{attribute(MAJOR)}.{attribute(MINOR)}",
                "multiprocessors": attribute(MULTIPROCESSORS),
                "memory": self.get("cuDeviceTotalMem_v2", ctypes.c_size_t, device)}

    def use(self, ordinal):
        """Makes the primary context of a device (the one CUDA's runtime uses) the calling thread's."""
        device = self.get("cuDeviceGet", ctypes.c_int, ordinal)
        self.call("cuCtxSetCurrent", ctypes.c_void_p(self.get("cuDevicePrimaryCtxRetain", ctypes.c_void_p, device)))

    def allocate(self, size):
        return self.get("cuMemAlloc_v2", ctypes.c_uint64, ctypes.c_size_t(size))

    def free(self, memory):
        self.call("cuMemFree_v2", ctypes.c_uint64(memory))

    def fill(self, memory, value, count):
        """Fills `count` floats and waits, because a memset would only be enqueued."""
        bits = ctypes.c_uint.from_buffer_copy(ctypes.c_float(value)).value
        self.call("cuMemsetD32_v2", ctypes.c_uint64(memory), ctypes.c_uint(bits), ctypes.c_size_t(count))
        self.call("cuCtxSynchronize")

    def read_float(self, memory):
        value = ctypes.c_float()
        self.call("cuMemcpyDtoH_v2", ctypes.byref(value), ctypes.c_uint64(memory), ctypes.c_size_t(4))
        return value.value

    def upload(self, memory, content):
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(memory), content, ctypes.c_size_t(len(content)))

    def download(self, memory, size):
        content = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", content, ctypes.c_uint64(memory), ctypes.c_size_t(size))
        return memoryview(content).cast("B")

    def stream(self):
        return ctypes.c_void_p(self.get("cuStreamCreate", ctypes.c_void_p, NON_BLOCKING))

    def synchronize(self, stream):
        self.call("cuStreamSynchronize", stream)

    def copy(self, to, source, size, stream):
        self.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), stream)

    def copy_rows(self, to, to_pitch, source, source_pitch, width, rows, stream):
        """Copies `rows` of `width` bytes, which are a pitch apart."""
        copy = Copy2D(source_type=MEMORY_DEVICE, source_device=source, source_pitch=source_pitch, to_type=MEMORY_DEVICE,
                      to_device=to, to_pitch=to_pitch, width=width, height=rows)
        self.call("cuMemcpy2DAsync_v2", ctypes.byref(copy), stream)

    def capture(self, stream, work):
        """Returns what `work()` enqueues on `stream`, as a graph to be launched."""
        self.call("cuStreamBeginCapture_v2", stream, CAPTURE_RELAXED)
        try:
            work()
        finally:
            graph = ctypes.c_void_p()
            self.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        return ctypes.c_void_p(self.get("cuGraphInstantiateWithFlags", ctypes.c_void_p, graph, ctypes.c_ulonglong(0)))

    def launch_graph(self, graph, stream):
        self.call("cuGraphLaunch", graph, stream)


def main():
    try:
        driver = Driver()
        version = driver.get("cuDriverGetVersion", ctypes.c_int)
        gpus = [driver.describe(i) for i in range(driver.count())]
    except CudaError as error:
        print(error)
        return 1
    print(json.dumps({"driver": f"{version // 1000}.{version % 1000 // 10}", "gpus": gpus}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
