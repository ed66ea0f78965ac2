"""AxCCL: collectives on arrays of any strides, along any axis, between processes and threads.

>>> axccl.local(2).run(lambda comm: comm.all_gather(np.full((2, 1), comm.rank), axis=1).tolist())
[[[0, 1], [0, 1]], [[0, 1], [0, 1]]]
"""

from __future__ import annotations

from axccl import _environment
from axccl._core import Channel, Communicator, unique_id
from axccl._errors import ArgumentError, Code, Error
from axccl._local import local
from axccl._memory import empty
from axccl._programs import get_dropin, get_include, get_library_dir

Communicator.from_env = classmethod(_environment.from_env)  # type: ignore[assignment]
for _public in (Channel, Communicator, unique_id, ArgumentError, Code, Error, local, empty, get_dropin, get_include,
                get_library_dir):
    try:
        _public.__module__ = "axccl"  # where a reader finds them
    except (AttributeError, TypeError):
        pass
del _public

__all__ = ["ArgumentError", "Channel", "Code", "Communicator", "Error", "empty", "get_dropin", "get_include",
           "get_library_dir", "local", "unique_id"]
