"""The calls: what their arguments mean, and whether they are right."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from axccl._errors import ArgumentError, Code, Error
from axccl.jax import _primitives, _world
from axccl.jax._internals import check_vma, varying_axes

AxisName = str | Sequence[str] | None

_REDUCED = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16",
            "float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2")
_MOVED = (*_REDUCED, "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e3m4",
          "float8_e8m0fnu")
_FLOATS = ("sum", "prod", "max", "min", "avg")
_WHOLE = ("sum", "prod", "max", "min", "avg", "and", "or", "xor", "logical_and", "logical_or")


def _wrong(text: str) -> ArgumentError:
    return ArgumentError(text, Code.INVALID_ARGUMENT)


class _Place:
    """Which ranks meet: those that differ along the axes of shard_map's mesh, or all of the communicator."""

    def __init__(self, call: str, axis_name: AxisName) -> None:
        world = _world.current(call)
        mesh = jax.sharding.get_abstract_mesh()
        manual = tuple(mesh.manual_axes)
        self.invariant = bool(check_vma.value)
        whole = [name for name in mesh.axis_names if name not in manual and mesh.shape[name] > 1]
        if manual and whole:  # XLA cannot divide the call among their devices, and would end the process
            raise Error(f"{call}: called in a jax.shard_map with axes of its mesh that are not manual, "
                        f"{', '.join(map(repr, whole))}; leave out its argument axis_names, or name all of "
                        f"{', '.join(map(repr, mesh.axis_names))} there", Code.INVALID_USAGE)
        if axis_name is None:
            self.axes: tuple[str, ...] | None = None
            self.vma, self.size = manual, world.size
            return
        self.axes = tuple(axis_name) if isinstance(axis_name, (list, tuple)) else (axis_name,)
        for name in self.axes:
            if name not in manual:
                within = f"the axes here are {', '.join(map(repr, manual))}" if manual else "there are no axes here"
                raise Error(f"{call}: argument axis_name is {name!r}; {within}. Call it inside jax.shard_map with "
                            "a mesh that has the axis, or leave axis_name out for all ranks", Code.INVALID_USAGE)
        if len(set(self.axes)) != len(self.axes) or not self.axes:
            raise _wrong(f"{call}: argument axis_name is {axis_name!r}; pass each axis once")
        self.vma = self.axes
        self.size = int(np.prod([mesh.shape[name] for name in self.axes]))

    def params(self) -> dict[str, Any]:
        return {"axes": self.axes, "vma": self.vma, "size": self.size, "invariant": self.invariant}

    def varying(self, x: Any) -> Any:
        """x as shard_map's check needs it: a value of each rank's own."""
        missing = tuple(name for name in self.vma if name not in varying_axes(jax.typeof(x))) if self.invariant else ()
        return jax.lax.pcast(x, missing, to="varying") if missing else x


def _array(call: str, x: Any, types: Sequence[str]) -> Any:
    try:
        array = jnp.asarray(x)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{call}: argument x has a {type(x).__name__}; pass arrays, or lists or dictionaries of "
                        "them") from error
    if str(array.dtype) not in types:
        raise TypeError(f"{call}: argument x has elements of {array.dtype}, which the library does not "
                        f"{'reduce' if len(types) < len(_MOVED) else 'have'}; convert it to one of {', '.join(types)}")
    return array


def _dim(call: str, argument: str, axis: Any, shape: tuple[int, ...]) -> int:
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise TypeError(f"{call}: argument {argument} is {axis!r}; pass a number")
    if not -len(shape) <= axis < len(shape):
        has = f"has axes {-len(shape)}..{len(shape) - 1}" if shape else "has no axes"
        raise _wrong(f"{call}: argument {argument} is {axis}; an array of {len(shape)} dimensions {has}")
    return int(axis) % len(shape)


def _divides(call: str, argument: str, dim: int, shape: tuple[int, ...], size: int) -> None:
    if shape[dim] % size != 0:
        raise _wrong(f"{call}: argument {argument} is {dim}, of which x has {shape[dim]}; the {size} ranks do not "
                     "divide that")


def _operator(call: str, op: str, dtype: Any) -> None:
    if op not in _primitives.OPS:
        raise _wrong(f"{call}: argument op is {op!r}; pass one of {', '.join(_primitives.OPS)}")
    kind = jnp.dtype(dtype)
    allowed: Sequence[str] = _FLOATS if jnp.issubdtype(kind, jnp.floating) else _WHOLE
    if jnp.issubdtype(kind, jnp.complexfloating):
        allowed = ("sum", "prod", "avg")
    elif kind == jnp.bool_:
        allowed = tuple(name for name in _WHOLE if name != "avg")
    if op not in allowed:
        raise _wrong(f"{call}: argument op is {op!r}, which {kind} does not have; pass one of {', '.join(allowed)}")


def _on_all(call: str, x: Any, types: Sequence[str], place: _Place, key: Callable[[Any], Any], bind: Callable[..., Any],
            op: str = "") -> Any:
    """bind(key, arrays) with the arrays of x that have one type and key: one operation. Results are as x is."""
    leaves, structure = jax.tree.flatten(x)
    arrays = [_array(call, leaf, types) for leaf in leaves]
    if op in ("sum", "prod"):  # booleans are counted, as by lax.psum
        arrays = [array.astype(jnp.int32) if array.dtype == jnp.bool_ else array for array in arrays]
    arrays = [place.varying(array) for array in arrays]
    parts: dict[Any, list[int]] = {}
    for index, array in enumerate(arrays):
        parts.setdefault((array.dtype, key(array)), []).append(index)
    results: list[Any] = [None] * len(arrays)
    for (_, found), indices in parts.items():
        for index, result in zip(indices, bind(found, [arrays[i] for i in indices])):
            results[index] = result
    return jax.tree.unflatten(structure, results)


def all_reduce(x: Any, axis_name: AxisName = None, *, op: str = "sum") -> Any:
    """The arrays of all ranks, reduced: lax.psum, pmax, pmin and pmean. Booleans are counted, as by psum.

    op: sum, prod, max, min, avg, and, or, xor, logical_and, logical_or. There are derivatives of sum and avg.

    >>> axccl.jax.init()
    >>> axccl.jax.all_reduce(jnp.ones(2)).tolist()
    [1.0, 1.0]
    >>> axccl.jax.shutdown()
    """
    place = _Place("all_reduce", axis_name)

    def check(array: Any) -> None:
        _operator("all_reduce", op, array.dtype)

    return _on_all("all_reduce", x, _REDUCED, place, check,
                   lambda _, arrays: _primitives.all_reduce_p.bind(*arrays, op=op, **place.params()), op)


def all_gather(x: Any, axis_name: AxisName = None, *, axis: int = 0) -> Any:
    """The arrays of all ranks, concatenated along `axis`: lax.all_gather(tiled=True).

    >>> axccl.jax.init()
    >>> axccl.jax.all_gather(jnp.ones((2, 3)), axis=1).shape
    (2, 3)
    >>> axccl.jax.shutdown()
    """
    place = _Place("all_gather", axis_name)
    return _on_all("all_gather", x, _MOVED, place, lambda array: _dim("all_gather", "axis", axis, array.shape),
                   lambda dim, arrays: _primitives.all_gather_p.bind(*arrays, dim=dim, **place.params()))


def reduce_scatter(x: Any, axis_name: AxisName = None, *, op: str = "sum", axis: int = 0) -> Any:
    """This rank's part along `axis` of the arrays of all ranks, reduced: lax.psum_scatter(tiled=True).

    op: as of all_reduce.

    >>> axccl.jax.init()
    >>> axccl.jax.reduce_scatter(jnp.ones(4), axis=0).shape
    (4,)
    >>> axccl.jax.shutdown()
    """
    place = _Place("reduce_scatter", axis_name)

    def dim_of(array: Any) -> int:
        _operator("reduce_scatter", op, array.dtype)
        dim = _dim("reduce_scatter", "axis", axis, array.shape)
        _divides("reduce_scatter", "axis", dim, array.shape, place.size)
        return dim

    return _on_all("reduce_scatter", x, _REDUCED, place, dim_of,
                   lambda dim, arrays: _primitives.reduce_scatter_p.bind(*arrays, dim=dim, op=op, **place.params()),
                   op)


def all_to_all(x: Any, axis_name: AxisName = None, *, split_axis: int = 0, concat_axis: int = 0) -> Any:
    """Part r along `split_axis` goes to rank r, which concatenates what it gets along `concat_axis`:
    lax.all_to_all(tiled=True).

    >>> axccl.jax.init()
    >>> axccl.jax.all_to_all(jnp.ones((2, 3)), split_axis=1, concat_axis=0).shape
    (2, 3)
    >>> axccl.jax.shutdown()
    """
    place = _Place("all_to_all", axis_name)

    def dims_of(array: Any) -> tuple[int, int]:
        split = _dim("all_to_all", "split_axis", split_axis, array.shape)
        _divides("all_to_all", "split_axis", split, array.shape, place.size)
        return split, _dim("all_to_all", "concat_axis", concat_axis, array.shape)

    return _on_all("all_to_all", x, _MOVED, place, dims_of,
                   lambda dims, arrays: _primitives.all_to_all_p.bind(*arrays, split=dims[0], concat=dims[1],
                                                                      **place.params()))


def ppermute(x: Any, axis_name: AxisName = None, *, perm: Sequence[tuple[int, int]]) -> Any:
    """Each (source, target) of `perm` moves the source's array to the target; zeros on a rank that is no target:
    lax.ppermute. Of several axes, `perm` counts in the order of `axis_name`, as lax.axis_index does.

    >>> axccl.jax.init()
    >>> axccl.jax.ppermute(jnp.ones(2), perm=[(0, 0)]).tolist()
    [1.0, 1.0]
    >>> axccl.jax.shutdown()
    """
    place = _Place("ppermute", axis_name)
    try:
        pairs = tuple((int(source), int(target)) for source, target in perm)
    except (TypeError, ValueError) as error:
        raise TypeError(f"ppermute: argument perm is {perm!r}; pass pairs of (source, target)") from error
    for which, name in ((0, "source"), (1, "target")):
        seen = [pair[which] for pair in pairs]
        for rank in seen:
            if not 0 <= rank < place.size:
                raise _wrong(f"ppermute: argument perm has the {name} {rank}; ranks are 0..{place.size - 1}")
            if seen.count(rank) > 1:
                raise _wrong(f"ppermute: argument perm has the {name} {rank} twice; name each {name} once")
    return _on_all("ppermute", x, _MOVED, place, lambda _: None,
                   lambda _, arrays: _primitives.ppermute_p.bind(*arrays, perm=pairs, **place.params()))


def ragged_all_to_all(operand: Any, output: Any, input_offsets: Any, send_sizes: Any, output_offsets: Any,
                      recv_sizes: Any, axis_name: AxisName = None) -> Any:
    """send_sizes[r] rows of `operand` from row input_offsets[r] on go to rank r, into its output from row
    output_offsets[r] on: lax.ragged_all_to_all. The result is `output` with the rows that have come.

    Offsets and sizes are vectors of int32 or int64 with an element for each rank, of values that may be computed.

    >>> axccl.jax.init()
    >>> one, zero = jnp.ones(1, jnp.int32), jnp.zeros(1, jnp.int32)
    >>> axccl.jax.ragged_all_to_all(jnp.ones(3), jnp.zeros(4), zero, 2 * one, one, 2 * one).tolist()
    [0.0, 1.0, 1.0, 0.0]
    >>> axccl.jax.shutdown()
    """
    call = "ragged_all_to_all"
    place = _Place(call, axis_name)
    data, result = _array(call, operand, _MOVED), _array(call, output, _MOVED)
    if data.dtype != result.dtype or data.ndim == 0 or data.shape[1:] != result.shape[1:]:
        raise _wrong(f"{call}: argument output is {result.dtype}{list(result.shape)}; pass {data.dtype} with rows as "
                     f"those of operand, {list(data.shape)}")
    vectors = []
    for name, given in (("input_offsets", input_offsets), ("send_sizes", send_sizes),
                        ("output_offsets", output_offsets), ("recv_sizes", recv_sizes)):
        vector = jnp.asarray(given)
        if vector.dtype not in (jnp.int32, jnp.int64):
            raise TypeError(f"{call}: argument {name} has elements of {vector.dtype}; pass int32 or int64")
        if vector.shape != (place.size,):
            raise _wrong(f"{call}: argument {name} has the shape {vector.shape}; pass ({place.size},), one for each "
                         "rank")
        vectors.append(vector)
    numbers = jnp.result_type(*vectors)
    operands = (place.varying(data), place.varying(result),
                *(place.varying(vector.astype(numbers)) for vector in vectors))
    (out,) = _primitives.ragged_all_to_all_p.bind(*operands, **place.params())
    return out
