"""AxCCL: collectives on arrays of any strides, along any axis, between processes and threads.

>>> axccl.local(2).run(lambda comm: comm.all_gather(np.full((2, 1), comm.rank), axis=1).tolist())
[[[0, 1], [0, 1]], [[0, 1], [0, 1]]]
"""

from __future__ import annotations

from axccl import _environment
from axccl._core import Channel, Communicator, library_version, unique_id
from axccl._errors import ArgumentError, Code, Error
from axccl._local import local
from axccl._memory import empty
from axccl._programs import get_dropin, get_include, get_library_dir, get_mpi

Communicator.from_env = classmethod(_environment.from_env)  # type: ignore[assignment]
for _public in (Channel, Communicator, unique_id, ArgumentError, Code, Error, local, empty, get_dropin, get_include,
                get_library_dir, get_mpi):
    try:
        _public.__module__ = "axccl"  # where a reader finds them
    except (AttributeError, TypeError):
        pass
del _public

_code = library_version()  # major * 10000 + minor * 100 + patch
__version__ = f"{_code // 10000}.{_code // 100 % 100}.{_code % 100}"

__all__ = ["ArgumentError", "Channel", "Code", "Communicator", "Error", "empty", "get_dropin", "get_include",
           "get_library_dir", "get_mpi", "local", "unique_id"]
