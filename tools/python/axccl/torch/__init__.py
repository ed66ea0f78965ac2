"""torch.distributed on AxCCL, for tensors of the CPU.

>>> import axccl.torch  # registers the backend
>>> torch.distributed.init_process_group("axccl", rank=0, world_size=1, store=torch.distributed.HashStore())
>>> x = torch.ones(3)
>>> torch.distributed.all_reduce(x)
>>> torch.distributed.destroy_process_group()

With GPUs, "cpu:axccl,cuda:nccl" serves both. The first import compiles a C++ extension against the installed PyTorch, in
about a minute, and keeps it for the next ones; it needs a C++ compiler.
"""

from __future__ import annotations

import datetime
from typing import Any

import torch
import torch.distributed

from axccl.torch import _build

_extension = _build.load()

__all__ = ["monitored_barrier", "stop_using_allocator", "use_allocator"]


def _create(options: Any, _backend_options: Any) -> Any:
    return _extension.create(options.store, options.group_rank, options.group_size, options.timeout, options.group_id)


torch.distributed.Backend.register_backend("axccl", _create, extended_api=True, devices=["cpu"])


def use_allocator(least_bytes: int = 64 << 10) -> None:
    """From now on, PyTorch's tensors on the CPU of at least that size are in memory that the other processes of this
    machine reach: collectives on them copy nothing in between, and are several times as fast from 256 KiB on.

    Tensors that live stay where they are. A fork copies what is there (docs/malloc.md).

    >>> axccl.torch.use_allocator()
    >>> axccl.torch.stop_using_allocator()
    """
    _extension.use_allocator(least_bytes)


def stop_using_allocator() -> None:
    """New tensors are in PyTorch's own memory again."""
    _extension.stop_using_allocator()


def monitored_barrier(group: Any = None, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = True) -> None:
    """A barrier whose error names all ranks that have not come within `timeout` (default: the group's).

    torch.distributed.monitored_barrier, whose arguments these are, serves gloo alone. All missing ranks are named without
    `wait_all_ranks`, too. After the error the group can no longer be used.
    """
    if group is torch.distributed.GroupMember.NON_GROUP_MEMBER:  # as PyTorch's functions
        return
    group = group or torch.distributed.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    backend.monitored_barrier(timeout or datetime.timedelta(milliseconds=-1), wait_all_ranks)  # below 0: the group's
