#!/usr/bin/env python3
"""axccl.jax against NumPy and against the same programs with lax: calls, types, derivatives, order, errors.

    python3 tests/clients/jax_ffi_check.py [--layout 4x1 ...] [TEST...]

A layout is processes x devices of each; "2x1,launcher" starts processes without jax.distributed, and "2x1,mpi" runs
lax's own collectives on libaxccl_mpi.so. Without arguments all layouts. Values are small integers where sums must be
exact; each process knows the inputs of all.
"""

import argparse
import os
import sys
import time
import traceback

from jax_mpi import test_mpi, test_mpi_symbols  # noqa: F401
from jax_ranks import Ranks, close, fill, parse, raises, run, same, shards_of, total

LAYOUTS = ["1x1", "2x1", "4x1", "1x4", "1x8", "2x2", "2x1,launcher", "2x1,mpi", "4x1,mpi"]


# ---- calls and types ----

NUMBERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
           "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"]
MOVED = [*NUMBERS, "bool", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e3m4",
         "float8_e8m0fnu"]


def test_reductions(ranks):
    import numpy as np
    import axccl.jax as ax

    n = ranks.count
    for dtype in NUMBERS:
        rows = fill(n, (2, 3 * n, 2), dtype)
        for rank, y in ranks.run(lambda x: ax.all_reduce(x, "i"), rows).items():
            same(y, total(rows), f"all_reduce {dtype}, rank {rank}")
        for rank, y in ranks.run(lambda x: ax.reduce_scatter(x, "i", axis=1), rows).items():
            same(y, np.split(total(rows), n, 1)[rank], f"reduce_scatter {dtype}, rank {rank}")
    rows = fill(n, (4,), "int32")
    for op, expected in (("prod", rows.prod(0)), ("max", rows.max(0)), ("min", rows.min(0)),
                         ("and", np.bitwise_and.reduce(rows)), ("or", np.bitwise_or.reduce(rows)),
                         ("xor", np.bitwise_xor.reduce(rows)), ("logical_and", (rows != 0).all(0)),
                         ("logical_or", (rows != 0).any(0))):
        for y in ranks.run(lambda x, op=op: ax.all_reduce(x, "i", op=op), rows).values():
            same(y, expected.astype(np.int32), f"all_reduce {op}")
    bits = fill(n, (5,)) > 1
    for y in ranks.run(lambda x: (ax.all_reduce(x, "i"), ax.all_reduce(x, "i", op="max")), bits).values():
        same(y[0], bits.sum(0).astype(np.int32), "all_reduce of booleans counts them")
        same(y[1], bits.any(0), "all_reduce max of booleans")
    for y in ranks.run(lambda x: ax.all_reduce(x, "i", op="avg"), fill(n, (5,))).values():
        close(y, fill(n, (5,)).mean(0), "all_reduce avg")


def test_moves(ranks):
    import numpy as np
    import axccl.jax as ax

    n = ranks.count
    for dtype in MOVED:
        rows = fill(n, (n, 3, 2 * n), dtype)
        for rank, y in ranks.run(lambda x: ax.all_gather(x, "i", axis=1), rows).items():
            same(y, np.concatenate(list(rows), 1), f"all_gather {dtype}, rank {rank}")
        for split, concat in ((0, 0), (0, 2), (2, 0), (-1, 1)):
            found = ranks.run(lambda x, s=split, c=concat: ax.all_to_all(x, "i", split_axis=s, concat_axis=c), rows)
            for rank, y in found.items():
                parts = [np.split(row, n, split)[rank] for row in rows]
                same(y, np.concatenate(parts, concat), f"all_to_all {split} {concat} {dtype}, rank {rank}")
        around = [(source, (source + 1) % n) for source in range(n - 1)]
        for rank, y in ranks.run(lambda x: ax.ppermute(x, "i", perm=around), rows).items():
            expected = rows[rank - 1] if rank > 0 else np.zeros(rows[0].shape, np.uint8).astype(rows.dtype)
            if rank > 0:
                same(y, expected, f"ppermute {dtype}, rank {rank}")
            else:
                assert not y.tobytes().strip(b"\0"), f"ppermute {dtype}: no zeros"


def ragged(n, rank):
    """Rank r sends (r + t) % 3 rows to t; everything lies one behind the other, from row 1 of the output on."""
    import numpy as np

    sizes = np.array([[(r + t) % 3 for t in range(n)] for r in range(n)])
    starts = np.cumsum(sizes, 1) - sizes
    into = 1 + np.cumsum(sizes, 0) - sizes
    return [row.astype(np.int32) for row in (starts[rank], sizes[rank], into[rank], sizes[:, rank])]


def test_ragged(ranks):
    import jax
    import numpy as np
    import axccl.jax as ax

    n = ranks.count
    for dtype in ("float32", "int8", "bfloat16"):
        rows, before = fill(n, (2 * n, 2), dtype, 1), fill(n, (2 * n + 3, 2), dtype, 2)
        numbers = [np.stack([ragged(n, r)[k] for r in range(n)]) for k in range(4)]
        found = ranks.run(lambda x, out, *k: ax.ragged_all_to_all(x, out, *k, "i"), (rows, before, *numbers))
        for rank, y in found.items():
            expected = before[rank].copy()
            for source in range(n):
                start, size, into, _ = (k[rank] for k in ragged(n, source))
                expected[into:into + size] = rows[source][start:start + size]
            same(y, expected, f"ragged_all_to_all {dtype}, rank {rank}")
    found = ranks.run(jax.vmap(lambda x, out, *k: ax.ragged_all_to_all(x, out, *k, "i"), (2, 2, *[None] * 4), 2),
                      (rows[..., None].repeat(3, 3), before[..., None].repeat(3, 3), *numbers))
    for rank, y in found.items():
        same(y[..., 2], expected if rank == n else y[..., 0], "ragged_all_to_all in vmap")


def test_shapes(ranks):
    """Scalars, nothing, nine dimensions, trees of several types, large arrays."""
    import jax
    import numpy as np
    import axccl.jax as ax

    n = ranks.count
    for shape in ((), (0,), (3, 0, 2), (1, 2, 1, 2, 1, 2, 1, 2, 1), (200000,)):
        rows = fill(n, shape)
        for y in ranks.run(lambda x: ax.all_reduce(x, "i"), rows).values():
            same(y, total(rows), f"all_reduce {shape}")
        if shape:
            for y in ranks.run(lambda x: ax.all_gather(x, "i", axis=-1), rows).values():
                same(y, np.concatenate(list(rows), -1), f"all_gather {shape}")
    rows = fill(n, (n, 4))

    def tree(x):
        y = ax.all_reduce({"a": x, "b": [x[0] * 2, x.astype("int32")]}, "i")
        assert not jax.tree.leaves(ax.all_reduce([], "i"))
        return y["a"], y["b"][0], y["b"][1], *ax.all_to_all([x, x.astype("int8")], "i")

    for rank, y in ranks.run(tree, rows).items():
        same(y[0], total(rows), "tree")
        same(y[1], total(rows)[0] * 2, "tree")
        same(y[2], total(rows).astype(np.int32), "tree")
        same(y[4], rows[:, rank].astype(np.int8), "tree")


# ---- programs ----


def test_programs(ranks):
    """scan, while_loop, cond, checkpoint, vmap and nested jit, with lax's and with ours, and their derivatives."""
    import jax
    import jax.numpy as jnp
    from jax import lax
    import axccl.jax as ax

    def program(psum, gather):
        inner = jax.jit(lambda x: psum(jnp.cos(x)))

        def body(x):
            y, _ = lax.scan(lambda c, k: (jnp.sin(psum(c)) + k, None), x, jnp.arange(3.0, dtype=x.dtype))
            y = lax.cond(x.shape[0] > 1, psum, lambda z: z, y)
            y = y + inner(x) * inner(x + 1) + jax.checkpoint(lambda z: psum(jnp.sin(psum(jnp.sin(z)))))(x)
            y = y + jax.vmap(psum, in_axes=1, out_axes=1)(x)
            return y + jax.vmap(lambda row: gather(row)[:x.shape[1]])(x)
        return body

    def looping(psum):
        return lambda x: lax.while_loop(lambda c: c[1] < 3, lambda c: (psum(c[0]) / 4, c[1] + 1), (x, 0))[0]

    def theirs(x):
        return lax.psum(x, "i")

    def ours(x):
        return ax.all_reduce(x, "i")

    bodies = [program(theirs, lambda x: lax.all_gather(x, "i", tiled=True)),
              program(ours, lambda x: ax.all_gather(x, "i"))]
    rows = fill(ranks.count, (4, 3)) / 4
    for what, transform in (("program", lambda f: f),
                            ("forward derivative", lambda f: lambda x: jax.jvp(f, (x,), (x,))[1]),
                            ("gradient", lambda f: jax.grad(lambda x: (f(x) ** 2).sum()))):
        expected, found = (ranks.run(transform(body), rows) for body in bodies)
        for rank, y in found.items():
            close(y, expected[rank], f"{what}, rank {rank}")
    expected, found = (ranks.run(looping(psum), rows) for psum in (theirs, ours))
    for rank, y in found.items():
        close(y, expected[rank], f"while_loop, rank {rank}")


def test_meshes(ranks):
    """Two axes, one of them, both in either order; a part of the devices; all ranks without an axis."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    import axccl.jax as ax

    n = ranks.count
    rows = fill(n, (4,), salt=1)
    for y in ranks.run(lambda x: ax.all_reduce(x), rows).values():
        expected = total(rows) if not ranks.mode else None
        if expected is not None:
            same(y, expected, "all ranks")
    if n >= 4 and n % 2 == 0:
        mesh = jax.sharding.Mesh(np.array(jax.devices())[::-1].reshape(2, n // 2), ("a", "b"))
        for axes in ("a", "b", ("a", "b"), ("b", "a")):
            ours = ranks.run(lambda x, axes=axes: ax.all_gather(x, axes), rows, mesh, ("a", "b"))
            theirs = ranks.run(lambda x, axes=axes: lax.all_gather(x, axes, tiled=True), rows, mesh, ("a", "b"))
            for rank, y in ours.items():
                same(y, theirs[rank], f"all_gather along {axes}, rank {rank}")
            size = {"a": 2, "b": n // 2}.get(axes, n)

            def places(x, axes=axes, around=[(place, (place + 1) % size) for place in range(size)]):
                place = lax.axis_index(axes)[None]
                return jnp.concatenate([place, ax.ppermute(place, axes, perm=around)])

            for rank, (place, came) in ranks.run(places, rows, mesh, ("a", "b")).items():
                assert came == (place - 1) % size, f"ppermute along {axes}, rank {rank}: {came} came to {place}"
    if ranks.processes == 1 and n >= 4:
        for part in (slice(0, 2), slice(1, 3), slice(0, n)):
            mesh = jax.sharding.Mesh(np.array(jax.devices())[part], ("i",))
            found = ranks.run(lambda x: ax.all_gather(x, "i"), rows[part], mesh)
            for y in found.values():
                same(y, rows[part].reshape(-1), f"a mesh of devices {part}")


# ---- derivatives ----


def linear_calls(n):
    """(name, call, its shape per rank) of the linear calls, all dimensions of different sizes."""
    import jax
    import axccl.jax as ax

    around = [(source, (source + 1) % n) for source in range(n - 1)]
    return [("all_reduce", lambda x: ax.all_reduce(x, "i"), (2, 3)),
            ("all_reduce avg", lambda x: ax.all_reduce(x, "i", op="avg"), (2, 3)),
            ("all_gather", lambda x: ax.all_gather(x, "i", axis=1), (2, 3)),
            ("reduce_scatter", lambda x: ax.reduce_scatter(x, "i", axis=1), (2, 3 * n)),
            ("reduce_scatter avg", lambda x: ax.reduce_scatter(x, "i", axis=1, op="avg"), (2, 3 * n)),
            ("all_to_all", lambda x: ax.all_to_all(x, "i", split_axis=1, concat_axis=0), (2, 3 * n)),
            ("all_to_all in place", lambda x: ax.all_to_all(x, "i", split_axis=1, concat_axis=1), (2, n, 3)),
            ("ppermute", lambda x: ax.ppermute(x, "i", perm=around), (2, 3)),
            ("vmap", jax.vmap(lambda x: ax.reduce_scatter(x, "i"), 1), (n, 5))]


def test_transposes(ranks):
    """<A x, y> = <x, A' y> summed over the ranks, for every linear A; and the second derivative along the first."""
    import jax
    import numpy as np
    import axccl.jax as ax

    n = ranks.count
    random = np.random.default_rng(7)
    for name, call, shape in linear_calls(n):
        x = random.integers(1, 5, (n, *shape)).astype(np.float32)
        y_shape = next(iter(ranks.run(call, x).values())).shape
        y = random.integers(1, 5, (n, *y_shape)).astype(np.float32)

        def sides(x, y, call=call):
            ax_, back = jax.vjp(call, x)
            back_of_linear = jax.linear_transpose(call, x)(y)[0]
            left, right = (ax_ * y).sum(), (x * back(y)[0]).sum()
            return ax.all_reduce((left, right, (x * back_of_linear).sum()), "i")

        for left, right, linear in ranks.run(sides, (x, y)).values():
            close(right, left, f"transpose of {name}")
            close(linear, left, f"linear_transpose of {name}")
            assert left != 0, name


def test_gradients(ranks):
    """As lax's, with what shard_map checks and without; and results that are the same on all ranks."""
    import jax
    import jax.numpy as jnp
    from jax import lax
    import axccl.jax as ax

    rows = fill(ranks.count, (2, 3 * ranks.count)) / 3
    around = [(source, (source + 1) % ranks.count) for source in range(ranks.count)]
    pairs = [(lambda x: ax.all_reduce(x, "i"), lambda x: lax.psum(x, "i")),
             (lambda x: ax.all_reduce(x, "i", op="avg"), lambda x: lax.pmean(x, "i")),
             (lambda x: ax.all_gather(x, "i", axis=1), lambda x: lax.all_gather(x, "i", axis=1, tiled=True)),
             (lambda x: ax.reduce_scatter(x, "i", axis=1),
              lambda x: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True)),
             (lambda x: ax.all_to_all(x, "i", split_axis=1, concat_axis=0),
              lambda x: lax.all_to_all(x, "i", 1, 0, tiled=True)),
             (lambda x: ax.ppermute(x, "i", perm=around), lambda x: lax.ppermute(x, "i", around))]
    for check in (False, True):
        for index, calls in enumerate(pairs):
            loss = [lambda x, call=call: (jnp.sin(call(x * x)) ** 2).sum() for call in calls]
            found, expected = (ranks.run(jax.grad(one), rows, check_vma=check) for one in loss)
            for rank, y in found.items():
                close(y, expected[rank], f"gradient {index}, check_vma={check}, rank {rank}")
            twice = [jax.grad(lambda x, one=one: (jax.grad(one)(x) ** 2).sum()) for one in loss]
            found, expected = (ranks.run(one, rows, check_vma=check) for one in twice)
            for rank, y in found.items():
                close(y, expected[rank], f"second derivative {index}, check_vma={check}, rank {rank}")
    from jax.sharding import PartitionSpec as P
    whole = jax.jit(jax.grad(lambda x: jax.shard_map(lambda s: ax.all_reduce((s ** 2).sum(), "i"), mesh=ranks.mesh,
                                                     in_specs=P("i"), out_specs=P())(x)))
    placed = jax.device_put(rows, jax.sharding.NamedSharding(ranks.mesh, P("i"))) if ranks.processes == 1 else None
    if placed is not None:
        close(whole(placed), 2 * rows, "gradient through shard_map")


def test_ragged_gradients(ranks):
    import jax
    import numpy as np
    import axccl.jax as ax

    n = ranks.count
    random = np.random.default_rng(9)
    x, out, y = (random.integers(-3, 4, (n, rows, 2)).astype(np.float32) for rows in (2 * n, 2 * n + 3, 2 * n + 3))
    numbers = [np.stack([ragged(n, r)[k] for r in range(n)]) for k in range(4)]

    def sides(x, out, y, *k):
        result, back = jax.vjp(lambda x, out: ax.ragged_all_to_all(x, out, *k, "i"), x, out)
        x_bar, out_bar = back(y)
        forward = jax.jvp(lambda x, out: ax.ragged_all_to_all(x, out, *k, "i"), (x, out), (x, out))[1]
        return ax.all_reduce(((result * y).sum(), (x * x_bar).sum() + (out * out_bar).sum(), (forward * y).sum()), "i")

    for left, right, forward in ranks.run(sides, (x, out, y, *numbers)).values():
        close(right, left, "transpose of ragged_all_to_all")
        close(forward, left, "derivative of ragged_all_to_all")


# ---- order ----


def test_order(ranks):
    """Independent calls whose operands are ready in another order on each rank, of one function called twice."""
    import jax
    import jax.numpy as jnp
    from jax import lax
    import numpy as np
    import axccl.jax as ax

    calls, size = 12, 4096
    twice = jax.jit(lambda x: ax.all_reduce(x, "i"))

    def slow(x, steps):
        """x, after a while."""
        return lax.fori_loop(0, steps, lambda _, c: jnp.tan(jnp.arctan(c)), x)

    def body(x):
        rank = lax.axis_index("i")
        results = []
        for k in range(calls):
            steps = jnp.where(rank % 2 == 0, k, calls - k) * 40
            operand = jnp.round(slow(x, steps)) + 10.0 ** (k % 3) * k
            results.append(twice(operand) if k % 3 == 0 else ax.all_reduce(operand, "i"))
        return jnp.stack(results)

    rows = np.repeat(np.arange(ranks.count, dtype=np.float32)[:, None], size, 1)
    for _ in range(3):
        for rank, y in ranks.run(body, rows).items():
            for k in range(calls):
                expected = rows.sum(0) + ranks.count * 10.0 ** (k % 3) * k
                close(y[k], expected, f"call {k} of independent ones, rank {rank}")


def test_dispatch(ranks):
    """Programs that are started without waiting, of two kinds in turn, with multiplications that need all threads."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec as P
    import axccl.jax as ax

    spec = NamedSharding(ranks.mesh, P("i"))

    def program(function):
        return jax.jit(jax.shard_map(function, mesh=ranks.mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False))

    multiply = program(lambda x: ax.all_reduce(x[0] @ (jnp.eye(256, dtype=x.dtype) * 2), "i")[None])
    gather = program(lambda x: ax.all_gather(x[0], "i")[None, :256])
    rows = fill(ranks.count, (256, 256))
    x = jax.make_array_from_callback(rows.shape, spec, lambda index: rows[index])
    started = [program_(x) for _ in range(30) for program_ in (multiply, gather)]
    for index, results in enumerate(started):
        for y in shards_of(results).values():
            same(y, total(rows) * 2 if index % 2 == 0 else rows[0], f"program {index}")


# ---- errors ----


def test_errors(ranks):
    """What a program gets that is wrong, before anything runs."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import axccl
    import axccl.jax as ax

    n = ranks.count

    def wrong(words, call, shape=(2, 3), kind=axccl.Error, dtype="float32"):
        raises(kind, words, ranks.run, call, fill(n, shape, dtype))

    wrong(["all_reduce", "axis_name is 'j'", "'i'"], lambda x: ax.all_reduce(x, "j"))
    wrong(["all_reduce", "axis_name is 0", "'i'"], lambda x: ax.all_reduce(x, 0))  # numpy's axis
    wrong(["axis_name is ('i', 'i')", "once"], lambda x: ax.all_reduce(x, ("i", "i")))
    raises(axccl.Error, ["axis_name is 'i'", "no axes here", "jax.shard_map"], lambda: ax.all_reduce(jnp.ones(2), "i"))
    wrong(["op is 'mean'", "avg"], lambda x: ax.all_reduce(x, "i", op="mean"), kind=ValueError)
    wrong(["op is 'max'", "complex64", "sum"], lambda x: ax.all_reduce(x, "i", op="max"), kind=ValueError,
          dtype="complex64")
    wrong(["op is 'and'", "float32"], lambda x: ax.reduce_scatter(x, "i", op="and"), kind=ValueError)
    wrong(["all_gather", "axis is 2", "-2..1"], lambda x: ax.all_gather(x, "i", axis=2), kind=ValueError)
    wrong(["all_gather", "no axes"], lambda x: ax.all_gather(x, "i"), (), kind=ValueError)
    wrong(["axis is 0.5", "number"], lambda x: ax.all_gather(x, "i", axis=0.5), kind=TypeError)
    wrong(["reduce_scatter", f"{2 * n + 1}", f"{n} ranks"],
          lambda x: ax.reduce_scatter(x, "i"), (2 * n + 1,), ValueError)
    wrong(["split_axis is 1", "ranks"], lambda x: ax.all_to_all(x, "i", split_axis=1), (n, 2 * n + 1), kind=ValueError)
    wrong(["perm", "target", "twice"], lambda x: ax.ppermute(x, "i", perm=[(0, 0), (1, 0)]), kind=ValueError)
    wrong(["perm", f"source {n}"], lambda x: ax.ppermute(x, "i", perm=[(n, 0)]), kind=ValueError)
    wrong(["perm", "pairs"], lambda x: ax.ppermute(x, "i", perm=[1, 2]), kind=TypeError)
    wrong(["int4", "convert"], lambda x: ax.all_gather(x.astype("int4"), "i"), kind=TypeError)
    wrong(["float8_e3m4", "reduce"], lambda x: ax.all_reduce(x.astype("float8_e3m4"), "i"), kind=TypeError)
    wrong(["str", "arrays"], lambda x: ax.all_reduce(["text"], "i"), kind=TypeError)
    wrong(["derivative", "max"], jax.grad(lambda x: ax.all_reduce(x, "i", op="max").sum()), kind=NotImplementedError)
    number = jnp.zeros(n, jnp.int32)
    wrong(["output is", "rows"], lambda x: ax.ragged_all_to_all(x, x[:, :1], *[number] * 4, "i"), kind=ValueError)
    wrong(["send_sizes has the shape"], lambda x: ax.ragged_all_to_all(x, x, number, number[:0], number, number, "i"),
          kind=ValueError)
    wrong(["recv_sizes", "float"],
          lambda x: ax.ragged_all_to_all(x, x, number, number, number, x[0], "i"), kind=TypeError)
    raises(axccl.Error, ["init", "already", "shutdown"], ax.init)
    if n >= 4 and n % 2 == 0:
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, n // 2), ("a", "b"))
        part = jax.shard_map(lambda x: ax.all_reduce(x, "a"), mesh=mesh, in_specs=jax.P("a"), out_specs=jax.P(),
                             axis_names={"a"})
        raises(axccl.Error, ["not manual, 'b'", "axis_names", "'a', 'b'"], jax.jit(part).lower, jnp.ones(2))
    if ranks.processes == 1 and n > 1:
        raises(axccl.Error, ["axis_name is None", f"{n - 1} of the devices", "mesh"], jax.jit(ax.all_reduce),
               jnp.ones(n))
        spread = jax.sharding.NamedSharding(ranks.mesh, jax.sharding.PartitionSpec("i"))
        raises(axccl.Error, ["outside of jax.shard_map", "several devices"],
               jax.jit(ax.all_reduce, in_shardings=spread), jnp.ones(n))


def test_failures(ranks):
    """What is wrong when it runs is an error on all ranks; a new communicator works. Without one, a sentence."""
    import jax
    import numpy as np
    import axccl
    import axccl.jax as ax

    n = ranks.count
    rows = fill(n, (4, 2))
    for far in (np.full((n, n), 7, np.int32), np.full((n, n), 1 << 32, np.int64)):
        raises(jax.errors.JaxRuntimeError, ["axccl.jax.ragged_all_to_all", "rank", str(far[0, 0])], ranks.run,
               lambda x, k: ax.ragged_all_to_all(x, x, k, k, k, k, "i"), (rows, far))
        ax.shutdown()
        ax.init()
    def call(x):
        return ax.all_reduce(x, "i")
    ax.shutdown()
    raises(axccl.Error, ["all_reduce", "axccl.jax.init()"], ranks.run, call, rows)
    raises(axccl.Error, ["size", "axccl.jax.init()"], ax.size)
    ax.shutdown()
    ax.init()
    for y in ranks.run(call, rows).values():
        same(y, total(rows), "after a new init")


# ---- one rank ----


def test_documentation(ranks):
    """The examples of the docstrings. Each makes a communicator of its own, of one rank."""
    import doctest
    import jax
    import jax.numpy as jnp
    import axccl.jax as ax
    import axccl

    ax.shutdown()
    assert ranks.count == 1
    names = {"axccl": axccl, "jax": jax, "jnp": jnp, "P": jax.sharding.PartitionSpec}
    for name, text in [("axccl.jax", ax.__doc__), *((name, getattr(ax, name).__doc__) for name in ax.__all__)]:
        log = []
        if name != "shutdown":
            assert ">>>" in text, f"{name} has no example"
        examples = doctest.DocTestParser().get_doctest(text, dict(names), name, None, 0)
        doctest.DocTestRunner().run(examples, out=log.append)
        assert not log, "".join(log)
    ax.init()


# ---- processes without jax.distributed ----


def test_launcher(ranks):
    """Each process has a JAX of its own; the calls reach all of them."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import axccl.jax as ax

    n = ax.size()
    assert n == ranks.processes * ranks.devices and ax.rank() == ranks.process * ranks.devices
    rows = fill(n, (3, n))
    mine = rows[ax.rank()]
    same(ax.all_reduce(jnp.asarray(mine)), total(rows), "outside of jit")
    same(jax.jit(lambda x: ax.all_gather(x * 2, axis=1))(mine), np.concatenate(list(rows), 1) * 2, "all_gather")
    part = np.split(total(rows), n, 1)[ax.rank()]
    same(jax.jit(lambda x: ax.reduce_scatter(x, axis=1))(mine), part, "reduce_scatter")
    close(jax.grad(lambda x: (ax.all_reduce(x) ** 2).sum())(mine), 2 * n * total(rows), "gradient")


def test_death(ranks):
    """A process that dies is an error of the others."""
    import jax
    import jax.numpy as jnp
    import axccl.jax as ax

    call = jax.jit(ax.all_reduce)
    jax.block_until_ready(call(jnp.ones(3)))
    if ranks.process == ranks.processes - 1:
        os._exit(0)
    started = time.monotonic()
    raises(jax.errors.JaxRuntimeError, ["axccl.jax.all_reduce", f"rank {ranks.processes - 1}"],
           lambda: jax.block_until_ready(call(jnp.ones(3))))
    assert time.monotonic() - started < 30


def test_deadline(ranks):
    """A rank that never comes: the error names it. The last test, because the communicator fails."""
    import jax
    import jax.numpy as jnp
    import axccl.jax as ax

    ax.shutdown()
    ax.init(timeout=1)
    call = jax.jit(lambda x: ax.all_reduce(x * 3))
    if ranks.process == 0:
        raises(jax.errors.JaxRuntimeError, ["axccl.jax.all_reduce", "rank 1"],
               lambda: jax.block_until_ready(call(jnp.ones(3))))
    else:
        time.sleep(2)
        # The first call may find what rank 0 has published before.
        raises(jax.errors.JaxRuntimeError, ["rank 0"],
               lambda: [jax.block_until_ready(call(jnp.ones(3))) for _ in range(2)])


LAUNCHED = ["launcher", "deadline"]
ALONE = ["documentation"]
MPI = ["mpi", "mpi_symbols"]
ALL = [name[5:] for name in dir() if name.startswith("test_") and name[5:] not in (*LAUNCHED, *ALONE, *MPI, "death")]


def tests_of(layout):
    """The tests that fit a layout."""
    if layout == "1x1":
        return ALONE
    return {"launcher": LAUNCHED, "mpi": MPI, "": ALL}[parse(layout)[2]]


# ---- runs ----


def child(processes, devices, process, port, mode, tests):
    import jax

    if mode != "launcher" and processes > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)
    import axccl.jax as ax

    if mode != "mpi":
        ax.init()
    ranks = Ranks(processes, devices, process, mode)
    for test in tests:
        try:
            globals()[f"test_{test}"](ranks)
        except Exception:  # pylint: disable=broad-except
            print(f"process {process} of {processes}, {devices} devices: {test} FAILED\n{traceback.format_exc()}",
                  flush=True)
            os._exit(1)
    ax.shutdown()
    if mode != "launcher" and processes > 1:
        jax.distributed.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layout", action="append", metavar="PROCESSESxDEVICES[,launcher]")
    parser.add_argument("--child", nargs=3, metavar=("LAYOUT", "PROCESS", "PORT"), help=argparse.SUPPRESS)
    parser.add_argument("tests", nargs="*", metavar="TEST", help=", ".join([*ALL, *LAUNCHED, *ALONE, *MPI, "death"]))
    arguments = parser.parse_args()
    if arguments.child:
        layout, process, port = arguments.child
        processes, devices, mode = parse(layout)
        child(processes, devices, int(process), int(port), mode, arguments.tests)
        return 0
    import axccl.jax  # noqa: F401  compiled here, not by several processes

    right = [run(__file__, layout, arguments.tests or tests_of(layout))
             for layout in arguments.layout or LAYOUTS]
    if not arguments.layout and not arguments.tests:
        right.append(run(__file__, "2x1,launcher", ["death"]))
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
