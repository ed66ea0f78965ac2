"""The calls as JAX's primitives: shapes, derivatives, vmap, and the custom call that they become.

Parameters: `axes`, the names of mesh axes, or None for all ranks; `vma`, the manual axes whose members get the same
result of all_reduce; `size`, the ranks of a group; `invariant`, whether shard_map checks what varies (check_vma=True).
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import jax
import numpy as np
from jax.extend.core import Primitive

from axccl._errors import Code, Error
from axccl.jax import _world
from axccl.jax._internals import (EFFECT, TokenSet, abstract_token, ad, apply_primitive, batching, bdim_at_front, mlir,
                                  needs_devices, varying_axes, with_varying_axes)

# The library's values of operators.
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4, "and": 0x7FFF0001, "or": 0x7FFF0002, "xor": 0x7FFF0003,
       "logical_and": 0x7FFF0004, "logical_or": 0x7FFF0005}
_LINEAR = ("sum", "avg")


# ---- from primitives to custom calls ----


def _devices(context: Any) -> Any:
    """The devices of the program's mesh; None if it has no mesh, or one whose devices are not known yet."""
    try:
        return context.mesh.devices
    except (AttributeError, ValueError):  # ValueError: an abstract mesh
        return None


def _groups(call: str, context: Any, axes: tuple[str, ...] | None) -> tuple[list[int], int]:
    """The ranks of all groups along `axes`, one group after the other, and the size of a group; none for all ranks."""
    if axes is None:
        return [], 0
    devices = _devices(context)
    if devices is None:
        raise Error(f"{call}: the mesh has no devices; make it by jax.make_mesh, or set one by jax.set_mesh",
                    Code.INVALID_USAGE)
    world = _world.current(call)
    names = list(context.mesh.axis_names)
    along = [names.index(name) for name in axes]
    others = [i for i in range(len(names)) if i not in along]
    size = int(np.prod([devices.shape[i] for i in along]))
    ranks = []
    for device in devices.transpose(others + along).reshape(-1):
        rank = world.rank(device)
        if rank is None:
            raise Error(f"{call}: {device} has no rank; make the mesh of jax.devices('cpu')", Code.INVALID_USAGE)
        ranks.append(rank)
    if ranks == list(range(world.size)) and size == world.size:
        return [], 0
    return ranks, size


def _check_all_take_part(call: str, context: Any) -> None:
    """A call of all ranks needs all devices of this process, or it would wait for the others without an end."""
    devices = _devices(context)
    if devices is None:
        devices = getattr(context, "device_assignment", None)
    if devices is None:
        return
    missing = _world.current(call).local_devices() - set(np.asarray(devices, object).reshape(-1))
    if missing:
        raise Error(f"{call}: argument axis_name is None, for all ranks, but {len(missing)} of the devices of this "
                    "process have no part in the program; call it inside jax.shard_map with a mesh of all jax.devices('cpu'), "
                    "or pass axis_name", Code.INVALID_USAGE)


def _array(numbers: Any) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int64).reshape(-1)


def _lower(call: str, attributes: Callable[..., dict[str, Any]], aliases: dict[int, int], ctx: Any, *operands: Any,
           **params: Any) -> Any:
    context = ctx.module_context.axis_context
    if params["axes"] is None and getattr(context, "num_devices", 1) > 1:
        raise Error(f"{call}: called outside of jax.shard_map in a program of several devices; call it inside",
                    Code.INVALID_USAGE)
    if params["axes"] is None:
        _check_all_take_part(call, context)
    ranks, group_size = _groups(call, context, params["axes"])
    given = {"op": 0, "axes": [(-1, -1)] * len(ctx.avals_out), "pairs": [], **attributes(len(ctx.avals_out), **params)}
    # The token comes last. It is what keeps calls in the order of the program.
    with_token = ctx.replace(avals_in=[*ctx.avals_in, abstract_token], avals_out=[*ctx.avals_out, abstract_token])
    rule = jax.ffi.ffi_lowering("axccl_jax_run", has_side_effect=True, operand_output_aliases=aliases)
    *results, token = rule(with_token, *operands, ctx.tokens_in.get(EFFECT), call=call,
                           world=np.int64(_world.current(call).size), ranks=_array(ranks),
                           group_size=np.int64(group_size), op=np.int64(given["op"]), axes=_array(given["axes"]),
                           pairs=_array(given["pairs"]))
    ctx.set_tokens_out(TokenSet({EFFECT: token}))
    return results


def _make(call: str, shape: Callable[..., tuple[int, ...]], attributes: Callable[..., dict[str, Any]],
          aliases: dict[int, int] | None = None, ragged: bool = False) -> Any:
    """A primitive of any number of operands, each of which has a result; `ragged`: the second one alone."""
    primitive = Primitive(f"axccl_{call}")
    primitive.multiple_results = True
    primitive.def_impl(functools.partial(apply_primitive, primitive))

    def abstract(*avals: Any, **params: Any) -> Any:
        outs = []
        for aval in avals[1:2] if ragged else avals:
            out = aval.update(shape=shape(aval.shape, **params), weak_type=False)
            if call == "all_reduce" and params["invariant"]:
                out = with_varying_axes(out, varying_axes(out) - frozenset(params["vma"]))
            outs.append(out)
        return outs, {EFFECT}

    primitive.def_effectful_abstract_eval(abstract)
    lowering = functools.partial(_lower, call, attributes, aliases or {})
    mlir.register_lowering(primitive, lowering, platform="cpu")
    needs_devices.add(primitive)
    return primitive


def _resized(shape: tuple[int, ...], axis: int, times: int = 1, divided: int = 1) -> tuple[int, ...]:
    return (*shape[:axis], shape[axis] * times // divided, *shape[axis + 1:])


def _resized_twice(shape: tuple[int, ...], *, split: int, concat: int, size: int, **_: Any) -> tuple[int, ...]:
    return _resized(_resized(shape, split, divided=size), concat, times=size)


all_reduce_p = _make("all_reduce", lambda shape, **_: shape, lambda count, *, op, **_: {"op": OPS[op]})
all_gather_p = _make("all_gather", lambda shape, *, dim, size, **_: _resized(shape, dim, times=size),
                     lambda count, *, dim, **_: {"axes": [(dim, -1)] * count})
reduce_scatter_p = _make("reduce_scatter", lambda shape, *, dim, size, **_: _resized(shape, dim, divided=size),
                         lambda count, *, dim, op, **_: {"op": OPS[op], "axes": [(dim, -1)] * count})
all_to_all_p = _make("all_to_all", _resized_twice,
                     lambda count, *, split, concat, **_: {"axes": [(split, concat)] * count})
ppermute_p = _make("ppermute", lambda shape, **_: shape, lambda count, *, perm, **_: {"pairs": perm})
# Operand, output, and four vectors; the result takes the place of the output.
ragged_all_to_all_p = _make("ragged_all_to_all", lambda shape, **_: shape, lambda count, **_: {"axes": [(0, -1)]},
                            {1: 0}, ragged=True)


# ---- derivatives: every call but the reductions other than sum and avg is linear ----


def _jvp(primitive: Any, primals: Any, tangents: Any, **params: Any) -> Any:
    outs = primitive.bind(*primals, **params)
    if all(type(tangent) is ad.Zero for tangent in tangents):  # pylint: disable=unidiomatic-typecheck
        return outs, [ad.Zero.from_primal_value(out) for out in outs]
    if params.get("op", "sum") not in _LINEAR:
        raise NotImplementedError(f"{primitive.name}: no derivative of argument op={params['op']!r}; there is one of "
                                  f"{' and '.join(_LINEAR)}")
    return outs, primitive.bind(*(ad.instantiate_zeros(tangent) for tangent in tangents), **params)


def _scaled(cotangents: Any, op: str, size: int) -> Any:
    return [cotangent / size for cotangent in cotangents] if op == "avg" else cotangents


def _transpose_all_reduce(cotangents: Any, *, op: str, size: int, invariant: bool, vma: Any, **params: Any) -> Any:
    # A result that is the same on all ranks has a cotangent that is the same on all, and complete. Otherwise each rank
    # has a part of it, as with lax.psum without check_vma.
    if invariant:
        return [jax.lax.pcast(cotangent, tuple(vma), to="varying") for cotangent in _scaled(cotangents, op, size)]
    return all_reduce_p.bind(*cotangents, op=op, size=size, invariant=invariant, vma=vma, **params)


def _transpose_reduce_scatter(cotangents: Any, *, op: str, size: int, **params: Any) -> Any:
    return all_gather_p.bind(*_scaled(cotangents, op, size), size=size, **params)


def _transpose_all_to_all(cotangents: Any, *, split: int, concat: int, **params: Any) -> Any:
    return all_to_all_p.bind(*cotangents, split=concat, concat=split, **params)


def _transpose_ppermute(cotangents: Any, *, perm: Any, **params: Any) -> Any:
    return ppermute_p.bind(*cotangents, perm=tuple((target, source) for source, target in perm), **params)


def _transpose(rule: Callable[..., Any], cotangents: Any, *operands: Any, **params: Any) -> Any:
    del operands
    return rule([ad.instantiate_zeros(cotangent) for cotangent in cotangents], **params)


def _transpose_all_gather(cotangents: Any, **params: Any) -> Any:
    return reduce_scatter_p.bind(*cotangents, op="sum", **params)


for _primitive, _rule in ((all_reduce_p, _transpose_all_reduce), (all_gather_p, _transpose_all_gather),
                          (reduce_scatter_p, _transpose_reduce_scatter), (all_to_all_p, _transpose_all_to_all),
                          (ppermute_p, _transpose_ppermute)):
    ad.primitive_jvps[_primitive] = functools.partial(_jvp, _primitive)
    ad.primitive_transposes[_primitive] = functools.partial(_transpose, _rule)


def _jvp_ragged(primals: Any, tangents: Any, **params: Any) -> Any:
    operand, output, *numbers = primals
    out = ragged_all_to_all_p.bind(operand, output, *numbers, **params)
    if all(type(tangent) is ad.Zero for tangent in tangents[:2]):  # pylint: disable=unidiomatic-typecheck
        return out, [ad.Zero.from_primal_value(out[0])]
    linear = [ad.instantiate_zeros(tangent) for tangent in tangents[:2]]
    return out, ragged_all_to_all_p.bind(*linear, *numbers, **params)


def _transpose_ragged(cotangents: Any, operand: Any, output: Any, input_offsets: Any, send_sizes: Any,
                      output_offsets: Any, recv_sizes: Any, **params: Any) -> Any:
    """The rows go back to where they came from; rows of the output that were not overwritten keep their cotangent."""
    cotangent = ad.instantiate_zeros(cotangents[0])
    # What this rank needs from the others: where its rows were there, and where their rows are in its output.
    there, here = all_to_all_p.bind(output_offsets, input_offsets, split=0, concat=0, **params)
    results: list[Any] = [None] * 6
    if ad.is_undefined_primal(operand):
        zeros = ad.instantiate_zeros(ad.Zero(operand.aval))
        results[0] = ragged_all_to_all_p.bind(cotangent, zeros, there, recv_sizes, here, send_sizes, **params)[0]
    if ad.is_undefined_primal(output):
        rows = jax.lax.broadcasted_iota(there.dtype, (cotangent.shape[0], there.shape[0]), 0)
        written = ((rows >= there) & (rows < there + recv_sizes)).any(axis=1)
        written = written.reshape(-1, *(1,) * (cotangent.ndim - 1))
        results[1] = jax.numpy.where(written, jax.numpy.zeros_like(cotangent), cotangent)
    return results


ad.primitive_jvps[ragged_all_to_all_p] = _jvp_ragged
ad.primitive_transposes[ragged_all_to_all_p] = _transpose_ragged


# ---- vmap: the calls take one dimension more ----


def _batch(primitive: Any, dims: tuple[str, ...], operands: Any, where: Any, **params: Any) -> Any:
    size = next(x.shape[d] for x, d in zip(operands, where) if d is not None)
    at_front = [bdim_at_front(x, d, size) for x, d in zip(operands, where)]
    outs = primitive.bind(*at_front, **{name: value + 1 if name in dims else value
                                        for name, value in params.items()})
    return outs, [0] * len(outs)


for _primitive, _dims in ((all_reduce_p, ()), (all_gather_p, ("dim",)), (reduce_scatter_p, ("dim",)),
                          (all_to_all_p, ("split", "concat")), (ppermute_p, ())):
    batching.primitive_batchers[_primitive] = functools.partial(_batch, _primitive, _dims)


def _batch_ragged(operands: Any, where: Any, **params: Any) -> Any:
    if any(d is not None for d in where[2:]):
        raise NotImplementedError("ragged_all_to_all: offsets and sizes are mapped by vmap; pass the same for all, or "
                                  "call it once for each")
    size = next(x.shape[d] for x, d in zip(operands, where) if d is not None)
    # Rows are along dimension 0, so the new dimension goes behind it.
    behind = [jax.numpy.moveaxis(bdim_at_front(x, d, size), 0, 1) for x, d in zip(operands[:2], where[:2])]
    return ragged_all_to_all_p.bind(*behind, *operands[2:], **params), [1]


batching.primitive_batchers[ragged_all_to_all_p] = _batch_ragged
