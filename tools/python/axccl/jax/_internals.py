"""The parts of JAX that it does not publish, in one place.

Calls are ordered by JAX's ordered effects (jax._src.effects): JAX threads a token through all calls of a program, in
the order of the program, and from one program to the next. No published function does that. The test
tests/clients/jax_ffi_check.py covers each promise that is used here; docs/clients.md lists the versions.
"""

from __future__ import annotations

from typing import Any

import jax

try:
    from jax._src import config, core, dispatch, distributed, effects
    from jax._src.interpreters import mlir

    from jax.interpreters import ad, batching

    _allowed = (effects.ordered_effects, effects.shardable_ordered_effects, effects.lowerable_effects,
                effects.control_flow_allowed_effects, effects.custom_derivatives_allowed_effects,
                effects.remat_allowed_effects)
    abstract_token = core.abstract_token
    apply_primitive = dispatch.apply_primitive
    needs_devices = dispatch.prim_requires_devices_during_lowering
    check_vma = config._check_vma  # pylint: disable=protected-access
    TokenSet = mlir.TokenSet
    bdim_at_front = batching.bdim_at_front
    clear_tokens = dispatch.runtime_tokens.clear
except (ImportError, AttributeError) as error:
    raise ImportError(f"axccl.jax: JAX {jax.__version__} lacks what the order of calls needs ({error}); install a "
                      "version that docs/clients.md names") from error

__all__ = ["EFFECT", "TokenSet", "abstract_token", "ad", "apply_primitive", "batching", "bdim_at_front", "check_vma",
           "clear_tokens", "distributed_client", "mlir", "needs_devices", "varying_axes", "with_varying_axes"]


class CallEffect(effects.Effect):  # type: ignore[misc]
    """That a call takes place: it is neither left out, nor doubled, nor put before or behind another one."""

    def __str__(self) -> str:
        return "AxCCL"


for _set in _allowed:
    _set.add_type(CallEffect)
EFFECT = CallEffect()


def varying_axes(aval: Any) -> frozenset[str]:
    """The mesh axes along which shard_map knows that a value differs."""
    if hasattr(aval, "vma"):  # JAX before 0.10
        return aval.vma
    return aval.mat.varying


def with_varying_axes(aval: Any, axes: frozenset[str]) -> Any:
    """The same with other axes."""
    if hasattr(aval, "vma"):
        return aval.update(vma=axes)
    return aval.update(manual_axis_type=aval.mat.update(varying=axes))


def distributed_client() -> object | None:
    """The client of jax.distributed's store, or None."""
    return distributed.global_state.client
