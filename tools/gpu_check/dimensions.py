"""all_gather along dimension 1, compared with dimension 0 and with the way without views: gather, then place the blocks.

As a program (part `dimensions` runs it so, under a time limit): prints rows as JSON. Each of n ranks of this process has
[rows, columns] and gets [rows, n * columns]; rows of the results of all contestants are compared with the inputs. What
lays the blocks in place is the driver's strided copy (one a block) and, where it can be imported, PyTorch's
transposing copy of the gathered blocks, each for every rank.
"""

import argparse
import array
import ctypes
import json
import sys

from gpu_check import bench, cuda
from gpu_check.ranks import NcclError, Ranks, seconds_of
from gpu_check.steps import Figure, Outcome, Table, parse_size, size_name

# ncclDataType_t, and the bytes of an element.
TYPES = {"f32": (7, 4), "bf16": (9, 2)}
RANKS = [2, 8]
SIZE = 256 << 20
DIM_1, DIM_0, STRIDED_COPY, TORCH = "dim 1", "dim 0", "gather, strided copies", "gather, torch's copy"


class View(ctypes.Structure):
    """axcclView_t"""
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_void_p), ("datatype", ctypes.c_int), ("num_dims", ctypes.c_int),
                ("sizes", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64))]

    @classmethod
    def of(cls, data, datatype, *sizes):
        return cls(ctypes.sizeof(cls), data, datatype, len(sizes), (ctypes.c_int64 * len(sizes))(*sizes), None)


class Matrix:
    """The gathered matrix. Every word of the inputs is unique; blocks pass through a buffer of each rank."""

    def __init__(self, ranks, kind):
        self.ranks, self.n = ranks, ranks.count
        self.datatype, self.element = TYPES[kind]
        self.block = ranks.size // self.n  # bytes
        elements = self.block // self.element
        self.rows = 1 << (elements.bit_length() - 1) // 2
        self.columns = elements // self.rows
        self.row_bytes = self.columns * self.element
        self.blocks = {rank: ranks.allocate(rank, ranks.size) for rank in ranks.mine}
        words = self.block // 4
        self.contents = [array.array("I", range(rank * words, (rank + 1) * words)).tobytes() for rank in range(self.n)]
        for rank in ranks.mine:
            ranks.use(rank)
            ranks.driver.upload(ranks.inputs[rank], self.contents[rank])

    def close(self):
        for rank, memory in self.blocks.items():
            self.ranks.release(rank, memory)

    def gather_views(self, dim):
        n, ranks = self.n, self.ranks
        sizes = (self.rows * n, self.columns) if dim == 0 else (self.rows, n * self.columns)
        views = {rank: (View.of(ranks.inputs[rank], self.datatype, self.rows, self.columns),
                        View.of(ranks.outputs[rank], self.datatype, *sizes)) for rank in ranks.mine}
        ranks.group(lambda rank: ranks.nccl("axcclAllGather", 1, ctypes.byref(views[rank][0]), ctypes.byref(views[rank][1]),
                                            dim, ranks.comm(rank), None, ranks.stream(rank)))

    def gather_blocks(self):
        ranks = self.ranks
        count = ctypes.c_size_t(self.block // self.element)
        ranks.group(lambda rank: ranks.nccl("ncclAllGather", ctypes.c_void_p(ranks.inputs[rank]),
                                            ctypes.c_void_p(self.blocks[rank]), count, self.datatype, ranks.comm(rank),
                                            ranks.stream(rank)))

    def gather_and_copy(self):
        self.gather_blocks()
        for rank in self.ranks.mine:
            self.ranks.use(rank)
            for block in range(self.n):
                self.ranks.driver.copy_rows(self.ranks.outputs[rank] + block * self.row_bytes, self.n * self.row_bytes,
                                            self.blocks[rank] + block * self.block, self.row_bytes, self.row_bytes, self.rows,
                                            self.ranks.stream(rank))

    def expected(self, row, dim):
        """Bytes of row `row` of the output."""
        if dim == 0:
            block, at = row // self.rows, row % self.rows * self.row_bytes
            return self.contents[block][at:at + self.row_bytes]
        at = row * self.row_bytes
        return b"".join(content[at:at + self.row_bytes] for content in self.contents)

    def check(self, what, dim):
        """All of every output."""
        rows, length = (self.n * self.rows, self.row_bytes) if dim == 0 else (self.rows, self.n * self.row_bytes)
        for rank in self.ranks.mine:
            self.ranks.use(rank)
            found = self.ranks.driver.download(self.ranks.outputs[rank], self.n * self.block)
            for row in range(rows):
                if found[row * length:(row + 1) * length] != self.expected(row, dim):
                    raise NcclError(f"all_gather, {what}: row {row} of {rows} of rank {rank} of {self.n} is wrong")


class Torch:
    """PyTorch's tensors of the buffers of a Matrix; their elements are integers of the right size."""

    def __init__(self, torch, matrix):
        self.torch, self.matrix = torch, matrix
        n, rows, columns = matrix.n, matrix.rows, matrix.columns
        self.pairs = []
        for rank in matrix.ranks.mine:
            gathered = self.tensor(matrix.blocks[rank], rank).view(n, rows, columns).transpose(0, 1)
            self.pairs.append((rank, self.tensor(matrix.ranks.outputs[rank], rank).view(rows, n, columns), gathered))

    def tensor(self, memory, rank):
        class Memory:
            __cuda_array_interface__ = {"shape": (self.matrix.n * self.matrix.rows * self.matrix.columns,), "version": 3,
                                        "typestr": f"<i{self.matrix.element}", "data": (memory, False)}
        return self.torch.as_tensor(Memory(), device=f"cuda:{self.matrix.ranks.devices[rank]}")

    def gather_and_copy(self):
        self.matrix.gather_blocks()
        for rank, out, gathered in self.pairs:
            stream = self.torch.cuda.ExternalStream(self.matrix.ranks.stream(rank).value, device=out.device)
            with self.torch.cuda.stream(stream):
                out.copy_(gathered)


def import_torch():
    """Imported after the library, so that its functions precede those of the NCCL that PyTorch contains."""
    try:
        import torch  # pylint: disable=import-outside-toplevel
        return torch if torch.cuda.is_available() else None
    except Exception:  # pylint: disable=broad-except: any error means that there is no PyTorch
        return None


def compete(ranks, torch, kind, repeats):
    """Microseconds by contestant."""
    matrix = Matrix(ranks, kind)
    contestants = [(DIM_1, lambda: matrix.gather_views(1), 1), (DIM_0, lambda: matrix.gather_views(0), 0),
                   (STRIDED_COPY, matrix.gather_and_copy, 1)]
    if torch is not None:
        contestants.append((TORCH, Torch(torch, matrix).gather_and_copy, 1))
    taken = {}
    for name, start, dim in contestants:
        ranks.spoil_outputs()
        taken[name] = seconds_of(start, ranks.wait, *repeats) * 1e6
        matrix.check(name, dim)
    shape = [matrix.rows, matrix.columns]
    matrix.close()
    return {"type": kind, "ranks": ranks.count, "gpus": len(ranks.used), "bytes": ranks.size, "shape": shape, "us": taken}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--sizes", type=parse_size, required=True, help="one: of the output")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-torch", action="store_true")
    arguments = parser.parse_args()
    try:
        ranks = Ranks(arguments.library, cuda.Driver(), arguments.ranks, arguments.sizes)
        torch = None if arguments.without_torch else import_torch()
        rows = [compete(ranks, torch, kind, (arguments.iterations, arguments.rounds)) for kind in TYPES]
        ranks.close()
    except (NcclError, cuda.CudaError) as error:
        print(error)
        return 1
    print(json.dumps(rows))
    return 0


# ---- the part ----

def figures(rows):
    found = []
    for row in rows:
        us, where = row["us"], f"{row['ranks']} ranks, {row['type']}, {size_name(row['bytes'])}"
        found.append(Figure("dim 1 to dim 0", us[DIM_1] / us[DIM_0], where))
        found.append(Figure("strided copies to dim 1", us[STRIDED_COPY] / us[DIM_1], where))
        if TORCH in us:
            found.append(Figure("torch to dim 1", us[TORCH] / us[DIM_1], where))
    return found


def table(rows):
    contestants = [DIM_1, DIM_0, STRIDED_COPY, TORCH]
    return Table("all_gather of [rows, columns] of each rank, us; as multiples of dim 1", [
        "type", "ranks", "GPUs", "output", "rows, columns", *contestants, *[f"{name}, x" for name in contestants[1:]]], [
        [row["type"], row["ranks"], row["gpus"], size_name(row["bytes"]), "{}, {}".format(*row["shape"]),
         *[row["us"].get(name) for name in contestants],
         *[row["us"][name] / row["us"][DIM_1] if name in row["us"] else None for name in contestants[1:]]] for row in rows])


def check(setup, size, repeats, python):
    """The part."""
    outcome = Outcome("dimensions")
    rows = []
    for ranks in RANKS:
        command = bench.command(setup, ranks, [size], repeats, module="dimensions", interpreter=python)
        run = setup.run(command + (["--without-torch"] if setup.software else []), 600, setup.environment())
        setup.keep(f"dimensions-{ranks}", run)
        rows += setup.must(f"all_gather of {ranks} ranks", run).json()
    outcome.figures = figures(rows)
    outcome.tables.append(table(rows))
    outcome.summary = "all results are right"
    if all(TORCH not in row["us"] for row in rows):
        outcome.notes.append("PyTorch's copies are not timed on the software GPU" if setup.software else
                             f"{python} has no torch that finds a GPU; --python names another")
    return outcome


if __name__ == "__main__":
    sys.exit(main())
