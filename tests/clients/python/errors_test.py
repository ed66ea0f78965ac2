"""Wrong calls: each raises an exception that names the argument, the value and the remedy; none ends the program, and
the communicator goes on."""

import copy
import ctypes
import math
import multiprocessing
import os
import pickle
import unittest

import numpy as np

import arrays
import axccl
import harness  # noqa: F401 (the deadline)


class Tensor:
    """What DLPack is given by other packages: no buffer protocol."""

    def __init__(self, array, on_device=False):
        self._array, self._on_device = array, on_device

    def __dlpack__(self, **options):
        capsule = self._array.__dlpack__(**({} if self._on_device else options))
        if self._on_device:  # DLTensor begins with the address, then the type of device: 2 is CUDA
            pointer = ctypes.pythonapi.PyCapsule_GetPointer
            pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 8).value = 2
        return capsule

    def __dlpack_device__(self):
        return (2, 0) if self._on_device else self._array.__dlpack_device__()


def _wrong(one):
    """Calls on one rank, and what their errors are and say."""
    x, out = np.ones((2, 3)), np.ones((2, 3))
    read_only = np.ones((2, 3))
    read_only.flags.writeable = False
    memory = np.ones(8)
    packed = np.zeros(3, dtype=[("a", "i1"), ("b", "f8")])["b"]
    argument, kind = axccl.ArgumentError, TypeError
    return [
        (lambda: one.all_reduce([1.0, 2.0]), kind, ["all_reduce: argument x[0] is of type float", "numpy.asarray"]),
        (lambda: one.all_reduce(3), kind, ["argument x is of type int"]),
        (lambda: one.all_reduce(None), kind, ["argument x is of type NoneType"]),
        (lambda: one.all_reduce(np.array(["a"])), kind, ["argument x", "elements of", "astype"]),
        (lambda: one.all_reduce(np.array([{}])), kind, ["argument x", "elements of"]),
        (lambda: one.all_reduce(np.zeros(2, "M8[s]")), kind, ["argument x", "datetime64"]),
        (lambda: one.all_reduce(np.ones(3, np.longdouble)), kind, ["argument x", "float64"]),
        (lambda: one.all_reduce(np.ones(3, ">f4")), kind, ["argument x", "byte order", "newbyteorder"]),
        (lambda: one.all_reduce(np.ma.array([1, 2], mask=[0, 1])), kind, ["argument x is a masked array", "x.filled"]),
        (lambda: one.all_reduce(packed), argument, ["stride of 9 bytes along axis 0", "ascontiguousarray"]),
        (lambda: one.all_reduce(np.ones((1,) * 9)), argument, ["argument x has 9 dimensions", "8 at most", "reshape"]),
        (lambda: one.all_reduce(x, out=read_only), argument, ["argument out is read-only", "copy"]),
        (lambda: one.all_reduce(x, out=b"123"), argument, ["argument out is read-only"]),
        (lambda: one.all_reduce(x, out=np.ones((3, 2))), argument, ["axcclAllReduce", "out", "sizes", "2", "3"]),
        (lambda: one.all_reduce(x, out=np.ones((2, 3), np.float32)), argument, ["axcclAllReduce", "datatype"]),
        (lambda: one.all_reduce(x, out=np.broadcast_to(np.ones(3), (2, 3))), argument, ["argument out is read-only"]),
        (lambda: one.all_reduce(memory[:6], out=memory[1:7]), argument, ["axcclAllReduce", "overlap"]),
        (lambda: one.all_reduce([x, x], out=[out, out]), argument, ["axcclAllReduce", "overlap"]),
        (lambda: one.all_reduce([]), argument, ["argument x is an empty list"]),
        (lambda: one.all_reduce([x], out=out), argument, ["a list of 1", "one array", "as many outputs"]),
        (lambda: one.all_reduce([x, x], out=[out]), argument, ["a list of 2", "a list of 1"]),
        (lambda: one.all_reduce(x, "plus"), argument, ["argument op is \"plus\"", "sum"]),
        (lambda: one.all_reduce(x, 1), kind, ["argument op is 1", "sum"]),
        (lambda: one.all_reduce(x, "and"), argument, ["axcclAllReduce: argument op is and", "it has sum"]),
        (lambda: one.all_reduce(Tensor(x, on_device=True)), kind, ["argument x is on a device", "type 2", "x.cpu()"]),
        (lambda: one.all_reduce(x, out=Tensor(read_only)), argument, ["argument out is read-only"]),
        (lambda: one.all_gather(x, axis=2), argument, ["all_gather: argument axis is 2", "-2..1"]),
        (lambda: one.all_gather(np.array(1.0)), argument, ["no axes", "reshape"]),
        (lambda: one.all_gather(x, "first"), kind, ["axis"]),
        (lambda: one.broadcast(read_only, root=3), argument, ["argument x is read-only"]),
        (lambda: one.broadcast(x, root=2), argument, ["axcclBroadcast", "root"]),
        (lambda: one.scatter(x, root=5, out=out), argument, ["scatter: argument root is 5", "0..0"]),
        (lambda: one.all_gather_v(x, [1, 2]), argument, ["argument extents has 2 numbers", "1 ranks"]),
        (lambda: one.all_gather_v(x, [-2]), argument, ["argument extents has -2", "0 rows or more"]),
        (lambda: one.all_gather_v(x, ["a"]), kind, ["argument extents is 'a'", "integers"]),
        (lambda: one.all_gather_v(x, 5), kind, ["argument extents is 5", "integers"]),
        (lambda: one.all_gather_v(x, [[2], [2]]), argument, ["argument extents has 2 sequences"]),
        (lambda: one.all_gather_v(x, [7]), argument, ["axcclAllGatherV", "size 2", "take 7"]),
        (lambda: one.all_gather_v(x, [1 << 70]), kind, ["argument extents", "integers"]),
        (lambda: one.permute(x, [(0, 0, 0)]), argument, ["argument pairs has an entry of 3 numbers"]),
        (lambda: one.permute(x, [(0, 4)]), argument, ["axcclCollectivePermute", "4"]),
        (lambda: one.send(x, 7), argument, ["axcclSend", "peer", "7"]),
        (lambda: one.sendrecv(x, 9, out, 0), argument, ["axcclSend", "peer", "9"]),
        (lambda: one.channel([[0, 1]]), argument, ["axcclGroupsCreate", "1"]),
        (lambda: one.channel([[0]], mode="lines"), argument, ["argument mode is \"lines\"", "cross_replica"]),
        (lambda: one.channel([[0]], replicas=3), argument, ["argument replicas is 3"]),
        (lambda: one.mesh_channel({"x": 1}, "z"), argument, ["axcclGroupsCreateFromMesh", "z"]),
        (lambda: one.mesh_channel({"x": 1}, [4]), kind, ["argument along has 4"]),
        (lambda: one.mesh_channel({1: 2}, "x"), kind, ["mesh_channel: argument mesh has 1: 2", "{\"x\": 2}"]),
        (lambda: one.mesh_channel({"x": 1.0}, "x"), kind, ["mesh_channel: argument mesh has 'x': 1.0"]),
        (lambda: one.mesh_channel({"x": 1}, [("x", 1, "y")]), kind, ["argument along has ('x', 1, 'y')"]),
        (lambda: one.split(-1), argument, ["split: argument color is -1", "None"]),
        (lambda: axccl.empty(1 << 62), ValueError, ["empty: argument shape is 4611686018427387904", "2**63 bytes"]),
        (lambda: axccl.empty(-1), ValueError, ["argument shape is -1"]),
        (lambda: axccl.empty(1, object), kind, ["argument dtype is object"]),
        (lambda: axccl.local(0), ValueError, ["argument size is 0"]),
        (lambda: axccl.Communicator(0, 1, "id"), kind, ["argument unique_id is of type str", "axccl.unique_id()"]),
        (lambda: axccl.Communicator(0, 1, b"id"), argument, ["argument unique_id has 2 bytes", "128"]),
        (lambda: axccl.Communicator(0, 1, bytes(128)), argument, ["commId"]),
        # Before it waits for the other rank, which does not come.
        (lambda: axccl.Communicator(0, 2, axccl.unique_id(), timeout=-1), argument, ["argument timeout is -1", "0"]),
        (lambda: axccl.Communicator(0, 2, axccl.unique_id(), timeout=math.nan), argument, ["argument timeout is nan"]),
        (lambda: axccl.Communicator(2, 1, axccl.unique_id()), argument, ["argument rank is 2"]),
        (lambda: pickle.dumps(one), kind, ["cannot be copied or pickled", "axccl.unique_id()"]),
        (lambda: copy.copy(one), kind, ["cannot be copied or pickled"]),
        (lambda: setattr(one, "timeout", -1), argument, ["axcclCommSetTimeout", "-1"]),
    ]


class Errors(unittest.TestCase):
    def expect(self, call, kind, words):
        with self.assertRaises(kind) as raised:
            call()
        for word in words:
            self.assertIn(word, str(raised.exception))
        if issubclass(kind, axccl.Error):
            self.assertIs(raised.exception.code, axccl.Code.INVALID_ARGUMENT)
            self.assertIsInstance(raised.exception, ValueError)

    def test_wrong_arguments(self):
        def rank(one):
            for number, (call, kind, words) in enumerate(_wrong(one)):
                with self.subTest(number=number, words=words):
                    self.expect(call, kind, words)
                    arrays.check_equal(one.all_reduce(np.arange(3)), np.arange(3), "afterwards")
        axccl.local(1).run(rank)

    def test_uneven_axis(self):
        def rank(comm):
            self.expect(lambda: comm.reduce_scatter(np.ones((4, 3)), axis=-1), axccl.ArgumentError,
                        ["argument axis is -1", "3 rows", "2 ranks", "reduce_scatter_v"])
            self.expect(lambda: comm.all_to_all(np.ones((3, 2))), axccl.ArgumentError,
                        ["argument split_axis is 0", "3 rows", "all_to_all_v"])
            if comm.rank == 1:
                self.expect(lambda: comm.scatter(None), axccl.ArgumentError, ["argument out is None", "rank 0"])
            comm.barrier()
        axccl.local(2).run(rank)

    def test_rows_without_end(self):
        """Whose number has more than 63 bits on all ranks."""
        def rank(comm):
            many = np.broadcast_to(np.int8(1), (1 << 62,))
            for call in (lambda: comm.all_gather(many), lambda: comm.gather(many, root=comm.rank)):
                self.expect(call, axccl.ArgumentError, ["argument x has 4611686018427387904 rows", "all 2 ranks"])
            for call in (lambda: comm.all_gather_v(np.ones(1), [1 << 62] * 2),
                         lambda: comm.all_to_all_v(np.ones(1), [1, 1], [1 << 62] * 2)):
                self.expect(call, axccl.ArgumentError, ["extents has rows whose sum has more than 63 bits"])
            comm.barrier()
        axccl.local(2).run(rank)

    def test_different_calls(self):
        def rank(comm):
            with self.assertRaises(axccl.Error) as raised:
                comm.all_reduce(np.ones(3 + comm.rank))
            self.assertEqual(raised.exception.code, axccl.Code.INVALID_USAGE)
            self.assertIn("3", str(raised.exception))
            self.assertIn("4", str(raised.exception))
        axccl.local(2).run(rank)

    def test_closed(self):
        comm = axccl.local(1).run(lambda comm: comm)[0]
        channel = axccl.local(1).run(lambda comm: comm.channel())[0]
        for call in (comm.barrier, lambda: comm.all_reduce(np.ones(1)), lambda: comm.split(0), comm.channel,
                     lambda: comm.link(0), lambda: comm.timeout, channel.barrier):
            with self.assertRaises(axccl.Error) as raised:
                call()
            self.assertIn("is closed; make a new one", str(raised.exception))
        comm.close()
        comm.abort()

        def rank(comm):
            channel = comm.channel()
            channel.close()
            with self.assertRaises(axccl.Error) as raised:
                channel.barrier()
            self.assertIn("the channel is closed", str(raised.exception))
            comm.barrier()
        axccl.local(1).run(rank)

    def test_forked(self):
        """A child of a process that has used the library gets an error, from old objects and new ones."""
        def rank(comm):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    wrong = 0
                    for call in (comm.barrier, axccl.unique_id, lambda: axccl.empty(5)):
                        try:
                            call()
                        except axccl.Error as error:
                            wrong += error.code == axccl.Code.INVALID_USAGE and "fork" in str(error)
                    del comm
                    status = 0 if wrong == 3 else 2
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            comm.barrier()
        axccl.local(1).run(rank)

    def test_pickled_error(self):
        error = pickle.loads(pickle.dumps(axccl.ArgumentError("text", 4)))
        self.assertEqual((str(error), error.code, type(error)), ("text", 4, axccl.ArgumentError))


class Operands(unittest.TestCase):
    """What passes as an array."""

    def test_buffers_and_dlpack(self):
        def rank(comm):
            sums = [comm.all_reduce(memoryview(bytearray(b"\1\2"))), comm.all_reduce(Tensor(np.array([1.0, 2.0])))]
            out = bytearray(2)
            self.assertIs(comm.all_reduce(b"\1\2", out=out), out)
            tensor = np.zeros(2)
            comm.all_reduce(np.array([1.0, 2.0]), out=Tensor(tensor))
            return [s.tolist() for s in sums] + [list(out), tensor.tolist(), float(comm.all_reduce(np.float64(2)))]
        self.assertEqual(axccl.local(2).run(rank), [[[2, 4], [2.0, 4.0], [2, 4], [2.0, 4.0], 4.0]] * 2)

    def test_buffers_without_strides(self):
        """ctypes gives none: its arrays are contiguous."""
        def rank(comm):
            rows = (ctypes.c_int16 * 3 * 2)((1, 2, 3), (4, 5, 6))
            shared = multiprocessing.RawArray("f", 2)
            shared[:] = 1, comm.rank
            out = (ctypes.c_float * 2)()
            self.assertIs(comm.all_reduce(shared, out=out), out)
            return comm.all_gather(rows, axis=1).tolist(), list(out)
        self.assertEqual(axccl.local(2).run(rank), [([[1, 2, 3, 1, 2, 3], [4, 5, 6, 4, 5, 6]], [2.0, 1.0])] * 2)

    def test_constant_root(self):
        def rank(comm):
            mine = np.full(2, comm.rank)
            if comm.rank == 1:
                mine.flags.writeable = False
            found = comm.broadcast(mine, root=1)
            self.assertIs(found, mine)
            return found.tolist()
        self.assertEqual(axccl.local(2).run(rank), [[1, 1]] * 2)

    def test_rows_of_each_array(self):
        def rank(comm):
            first, second = np.full(comm.rank + 1, comm.rank), np.full(2 * comm.rank, 5 + comm.rank)
            gathered = comm.all_gather_v([first, second], [[1, 2], [0, 2]])
            parts = comm.reduce_scatter_v([np.arange(3), np.arange(2)], [[1, 2], [0, 2]])
            return [array.tolist() for array in gathered + parts]
        self.assertEqual(axccl.local(2).run(rank), [[[0, 1, 1], [6, 6], [0], []], [[0, 1, 1], [6, 6], [2, 4], [0, 2]]])

    def test_averages(self):
        def rank(comm):
            return [comm.all_reduce(np.array([comm.rank - 2], t), "avg")[0] for t in (np.int8, np.float32)]
        self.assertEqual(axccl.local(2).run(rank), [[-1, -1.5]] * 2)

    def test_memory(self):
        array = axccl.empty((3, 4), np.int16)
        self.assertEqual((array.shape, array.dtype, array.flags.writeable), ((3, 4), np.int16, True))
        array[...] = 1
        part = array[1:]
        del array
        self.assertEqual(part.sum(), 8)
        self.assertEqual(axccl.empty(0).size, 0)
        self.assertEqual(axccl.empty(()).shape, ())
        for _ in range(5000):  # more than the largest heap (1 TiB): it is freed
            axccl.empty(256 << 20, np.uint8)

    def test_threads_of_one_rank(self):
        """Calls of several threads at a time, each on its channel."""
        import threading

        def rank(comm):
            channels = [comm.channel(id=i + 1) for i in range(3)]
            sums = [0] * 3

            def work(i):
                for _ in range(50):
                    sums[i] += int(channels[i].all_reduce(np.array([i + 1]))[0])
            threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return sums
        self.assertEqual(axccl.local(2).run(rank), [[100, 200, 300]] * 2)


if __name__ == "__main__":
    unittest.main()
