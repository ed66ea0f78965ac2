"""Ranks as threads and as processes, for tests of the Python package. A test that hangs prints all stacks and fails."""

import faulthandler
import multiprocessing
import os
import sys
import traceback

import axccl

# Seconds for a whole test program: a wait without an end must not stop a machine. CTest's own limit is longer.
faulthandler.dump_traceback_later(float(os.environ.get("AXCCL_TEST_SECONDS", "240")), exit=True)

SEED = int(os.environ.get("AXCCL_TEST_SEED", "0")) or int.from_bytes(os.urandom(4), "little")
SECONDS = 120  # for a run of processes


def _child(rank, size, pipe, function, arguments):
    """A process's rank: sends its unique id or gets it, then what the function returns, or the text of its error."""
    try:
        if rank == 0:
            meeting = axccl.unique_id()
            pipe.send(meeting)
        else:
            meeting = pipe.recv()
        with axccl.Communicator(rank, size, meeting) as comm:
            pipe.send((True, function(comm, *arguments)))
    except BaseException:  # pylint: disable=broad-except
        pipe.send((False, traceback.format_exc()))
        sys.exit(1)


class Processes:
    """Ranks that are new processes. `dies` are ranks that may end without a result."""

    def __init__(self, size):
        self.size = size

    def run(self, function, *arguments, dies=()):
        context = multiprocessing.get_context("spawn")
        pipes, children = [], []
        for rank in range(self.size):
            here, there = context.Pipe()
            child = context.Process(target=_child, args=(rank, self.size, there, function, arguments))
            child.start()
            there.close()
            pipes.append(here)
            children.append(child)
        try:
            meeting = self._receive(pipes[0])
            for pipe in pipes[1:]:
                pipe.send(meeting)
            results = [None if rank in dies else self._receive(pipe) for rank, pipe in enumerate(pipes)]
        finally:
            for child in children:
                child.join(SECONDS)
                if child.is_alive():
                    child.kill()
        failed = [f"rank {rank}: {result[1]}" for rank, result in enumerate(results) if result and not result[0]]
        if failed:
            raise AssertionError("\n".join(failed))
        return [result and result[1] for result in results]

    @staticmethod
    def _receive(pipe):
        if not pipe.poll(SECONDS):
            raise AssertionError(f"a rank sent nothing for {SECONDS} s")
        return pipe.recv()


Threads = axccl.local
