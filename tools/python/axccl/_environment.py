"""Communicators of processes that a launcher has started."""

from __future__ import annotations

import os
from typing import Mapping

from axccl import _core
from axccl._errors import Code, Error

# Rank and size: torchrun, Open MPI, MPICH and Intel MPI, MVAPICH, Slurm.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def place(environment: Mapping[str, str]) -> tuple[int, int]:
    """Rank and size by the launcher's variables.

    >>> from axccl._environment import place
    >>> place({"PMI_RANK": "1", "PMI_SIZE": "4"})
    (1, 4)
    """
    for rank, size in _LAUNCHERS:
        if rank in environment and size in environment:
            try:
                return int(environment[rank]), int(environment[size])
            except ValueError:
                raise Error(f"Communicator.from_env: {rank}={environment[rank]} and {size}={environment[size]} are "
                            "not both numbers; set them to a rank and the number of ranks",
                            Code.INVALID_USAGE) from None
    names = ", ".join(f"{rank} and {size}" for rank, size in _LAUNCHERS)
    raise Error(f"Communicator.from_env: the environment has none of {names}; start the program with torchrun, mpirun "
                "or srun, or set the first two", Code.INVALID_USAGE)


def meeting_point(environment: Mapping[str, str]) -> str:
    """host:port at which the ranks meet. The agent of torchrun holds MASTER_PORT itself, so they meet at the next port.

    >>> from axccl._environment import meeting_point
    >>> meeting_point({"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4711"})
    '10.0.0.1:4711'
    """
    if environment.get("NCCL_COMM_ID"):
        return environment["NCCL_COMM_ID"]
    host, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if not host or not port:
        raise Error("Communicator.from_env: the environment has neither NCCL_COMM_ID nor MASTER_ADDR and MASTER_PORT, "
                    "by which ranks meet; set NCCL_COMM_ID=<host of rank 0>:<a free port> on all ranks",
                    Code.INVALID_USAGE)
    if not port.isdigit():
        raise Error(f"Communicator.from_env: MASTER_PORT={port} is not a number; set a port", Code.INVALID_USAGE)
    number = int(port) + (1 if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else 0)
    return f"[{host}]:{number}" if ":" in host and not host.startswith("[") else f"{host}:{number}"


def launched_id(call: str) -> bytes:
    """The id at whose place the processes of a launcher meet. `call` names the caller in errors."""
    point = meeting_point(os.environ)
    # The library reads the variable once, with the first id.
    before = os.environ.get("NCCL_COMM_ID")
    os.environ["NCCL_COMM_ID"] = point
    try:
        unique_id = _core.unique_id()
        if before is None and unique_id != _core.unique_id():
            raise Error(f"{call}: axccl.unique_id() was called before, when NCCL_COMM_ID was not set, and the library "
                        f"reads it once; call {call.rpartition('.')[2]} first, or set NCCL_COMM_ID={point}",
                        Code.INVALID_USAGE)
    finally:
        if before is None:
            del os.environ["NCCL_COMM_ID"]
    return unique_id


def from_env(cls: type[_core.Communicator], *, name: str | None = None,
             timeout: float | None = None) -> _core.Communicator:
    """The communicator of all processes that torchrun, mpirun or srun has started.

    Rank and size come from the launcher's variables. Ranks meet at NCCL_COMM_ID=host:port, or else at MASTER_ADDR and
    MASTER_PORT (under torchrun: the port after it). On several machines they also need AXCCL_SECRET_FILE
    (docs/two-machines.md). Afterwards axccl.unique_id() names that place, too: other communicators are made by split.

    >>> import os
    >>> os.environ.update(RANK="0", WORLD_SIZE="1")
    >>> axccl.Communicator.from_env().size
    1
    """
    rank, size = place(os.environ)
    if size == 1:
        return cls(rank, size, _core.unique_id(), name=name, timeout=timeout)
    return cls(rank, size, launched_id("Communicator.from_env"), name=name, timeout=timeout)
