"""AxCCL's calls inside of JAX programs on the CPU: in jax.jit and jax.shard_map, between the devices of one process
and of several.

>>> axccl.jax.init()  # every CPU device becomes a rank
>>> mesh = jax.sharding.Mesh(jax.devices(), ("i",))
>>> total = jax.shard_map(lambda x: axccl.jax.all_reduce(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
>>> jax.jit(total)(jnp.ones(jax.device_count())).tolist()
[1.0]
>>> axccl.jax.shutdown()

Calls take an array, or lists and dictionaries of arrays, which are then one operation. axis_name: one or more axes of
shard_map's mesh, as in jax.lax; without it, all ranks. Derivatives, vmap, scan, cond, while_loop and checkpoint work.

All ranks make the same calls in the same order. JAX keeps the order in which the program makes them: on each rank, a
call begins when the one before has ended, also those of other programs. The first import compiles an extension, in some
seconds, and keeps it for the next ones; it needs a C++ compiler.
"""

from axccl.jax._calls import all_gather, all_reduce, all_to_all, ppermute, ragged_all_to_all, reduce_scatter
from axccl.jax._world import init, rank, shutdown, size

__all__ = ["all_gather", "all_reduce", "all_to_all", "init", "ppermute", "ragged_all_to_all", "rank", "reduce_scatter",
           "shutdown", "size"]
