"""Random calls with NumPy as the oracle. Each takes numbers from a generator that all ranks of the channel share, so
that every rank knows the inputs of all, and returns this rank's input, what it must get, and the call."""

import numpy as np

import arrays


class Call:
    """x: this rank's input, or None. expected: its result, or None. run(comm, x, out). own_part(out): where x lies when
    the call is made in place."""

    def __init__(self, x, expected, run, own_part=None):
        self.x, self.expected, self.run, self.own_part = x, expected, run, own_part


def _shape(rng, ndim):
    return [int(size) for size in rng.integers(0 if rng.random() < 0.1 else 1, 5, size=ndim)]


def _along(rng, size):
    """Shape, axis, and the axis as it is written."""
    shape = _shape(rng, int(rng.integers(1, 5)))
    axis = int(rng.integers(len(shape)))
    return shape, axis, axis - len(shape) * int(rng.integers(2))


def _inputs(rng, shapes, dtype):
    return [arrays.values(rng, shape, dtype) for shape in shapes]


def _rows(axis, first, count):
    return (slice(None),) * axis + (slice(first, first + count),)


def _with(shape, axis, rows):
    return [*shape[:axis], rows, *shape[axis + 1:]]


def all_reduce(rng, comm, dtype, op):
    shape = _shape(rng, int(rng.integers(0, 5)))
    inputs = _inputs(rng, [shape] * comm.size, dtype)
    return Call(inputs[comm.rank], arrays.fold(op, inputs), lambda c, x, out: c.all_reduce(x, op, out=out),
                lambda out: out)


def reduce(rng, comm, dtype, op):
    shape, root = _shape(rng, int(rng.integers(0, 5))), int(rng.integers(comm.size))
    inputs = _inputs(rng, [shape] * comm.size, dtype)
    expected = arrays.fold(op, inputs) if comm.rank == root else None
    return Call(inputs[comm.rank], expected, lambda c, x, out: c.reduce(x, op, root, out=out), lambda out: out)


def all_gather(rng, comm, dtype, _):
    shape, axis, written = _along(rng, comm.size)
    inputs = _inputs(rng, [shape] * comm.size, dtype)
    part = _rows(axis, comm.rank * shape[axis], shape[axis])
    return Call(inputs[comm.rank], np.concatenate(inputs, axis), lambda c, x, out: c.all_gather(x, written, out=out),
                lambda out: out[part])


def gather(rng, comm, dtype, _):
    shape, axis, written = _along(rng, comm.size)
    root = int(rng.integers(comm.size))
    inputs = _inputs(rng, [shape] * comm.size, dtype)
    expected = np.concatenate(inputs, axis) if comm.rank == root else None
    return Call(inputs[comm.rank], expected, lambda c, x, out: c.gather(x, root, axis=written, out=out))


def reduce_scatter(rng, comm, dtype, op):
    shape, axis, written = _along(rng, comm.size)
    shape[axis] *= comm.size
    inputs = _inputs(rng, [shape] * comm.size, dtype)
    expected = np.split(arrays.fold(op, inputs), comm.size, axis)[comm.rank]
    return Call(inputs[comm.rank], expected, lambda c, x, out: c.reduce_scatter(x, op, written, out=out))


def scatter(rng, comm, dtype, _):
    shape, axis, written = _along(rng, comm.size)
    root = int(rng.integers(comm.size))
    shape[axis] *= comm.size
    (sent,) = _inputs(rng, [shape], dtype)
    return Call(sent if comm.rank == root else None, np.split(sent, comm.size, axis)[comm.rank],
                lambda c, x, out: c.scatter(x, root, axis=written, out=out))


def all_to_all(rng, comm, dtype, _):
    shape, split, written = _along(rng, comm.size)
    concat = int(rng.integers(len(shape)))
    shape[split] *= comm.size
    inputs = _inputs(rng, [shape] * comm.size, dtype)
    expected = np.concatenate([np.split(x, comm.size, split)[comm.rank] for x in inputs], concat)
    return Call(inputs[comm.rank], expected, lambda c, x, out: c.all_to_all(x, written, concat, out=out))


def broadcast(rng, comm, dtype, _):
    shape, root = _shape(rng, int(rng.integers(0, 5))), int(rng.integers(comm.size))
    (sent,) = _inputs(rng, [shape], dtype)
    mine = sent if comm.rank == root else arrays.values(rng, shape, dtype)
    return Call(mine, sent, lambda c, x, out: c.broadcast(x, root, out=out), lambda out: out)


def all_gather_v(rng, comm, dtype, _):
    shape, axis, written = _along(rng, comm.size)
    extents = [int(rows) for rows in rng.integers(0, 4, size=comm.size)]
    inputs = _inputs(rng, [_with(shape, axis, rows) for rows in extents], dtype)
    return Call(inputs[comm.rank], np.concatenate(inputs, axis),
                lambda c, x, out: c.all_gather_v(x, extents, written, out=out))


def gather_v(rng, comm, dtype, _):
    shape, axis, written = _along(rng, comm.size)
    root = int(rng.integers(comm.size))
    extents = [int(rows) for rows in rng.integers(0, 4, size=comm.size)]
    inputs = _inputs(rng, [_with(shape, axis, rows) for rows in extents], dtype)
    return Call(inputs[comm.rank], np.concatenate(inputs, axis) if comm.rank == root else None,
                lambda c, x, out: c.gather_v(x, extents, root, written, out=out))


def _parts(array, extents, axis):
    return np.split(array, np.cumsum(extents)[:-1], axis)


def reduce_scatter_v(rng, comm, dtype, op):
    shape, axis, written = _along(rng, comm.size)
    extents = [int(rows) for rows in rng.integers(0, 4, size=comm.size)]
    inputs = _inputs(rng, [_with(shape, axis, sum(extents))] * comm.size, dtype)
    return Call(inputs[comm.rank], _parts(arrays.fold(op, inputs), extents, axis)[comm.rank],
                lambda c, x, out: c.reduce_scatter_v(x, extents, op, written, out=out))


def scatter_v(rng, comm, dtype, _):
    shape, axis, written = _along(rng, comm.size)
    root = int(rng.integers(comm.size))
    extents = [int(rows) for rows in rng.integers(0, 4, size=comm.size)]
    (sent,) = _inputs(rng, [_with(shape, axis, sum(extents))], dtype)
    return Call(sent if comm.rank == root else None, _parts(sent, extents, axis)[comm.rank],
                lambda c, x, out: c.scatter_v(x, extents, root, written, out=out))


def all_to_all_v(rng, comm, dtype, _):
    shape, axis, written = _along(rng, comm.size)
    table = rng.integers(0, 4, size=(comm.size, comm.size))  # [from, to]
    inputs = _inputs(rng, [_with(shape, axis, int(row.sum())) for row in table], dtype)
    expected = np.concatenate([_parts(x, row, axis)[comm.rank] for x, row in zip(inputs, table)], axis)
    sent, received = table[comm.rank], table[:, comm.rank]
    return Call(inputs[comm.rank], expected, lambda c, x, out: c.all_to_all_v(x, sent, received, written, out=out))


def permute(rng, comm, dtype, _):
    shape = _shape(rng, int(rng.integers(0, 5)))
    inputs = _inputs(rng, [shape] * comm.size, dtype)
    targets = rng.permutation(comm.size)
    pairs = [(source, int(target)) for source, target in enumerate(targets) if rng.random() < 0.8]
    expected = np.zeros(shape, dtype)
    for source, target in pairs:
        if target == comm.rank:
            expected = inputs[source]
    return Call(inputs[comm.rank], expected, lambda c, x, out: c.permute(x, pairs, out=out))


def ring(rng, comm, dtype, _):
    shape = _shape(rng, int(rng.integers(0, 5)))
    inputs = _inputs(rng, [shape] * comm.size, dtype)
    ahead, behind = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    return Call(inputs[comm.rank], inputs[behind],
                lambda c, x, out: c.sendrecv(x, ahead, np.empty(shape, dtype) if out is None else out, behind))


REDUCTIONS = [all_reduce, reduce, reduce_scatter, reduce_scatter_v]
CALLS = REDUCTIONS + [all_gather, gather, scatter, all_to_all, broadcast, all_gather_v, gather_v, scatter_v,
                      all_to_all_v, permute, ring]
NEEDS_OUT = (scatter, scatter_v)  # on ranks other than the root
