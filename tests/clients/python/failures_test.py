"""Ranks that die, raise, leave, are aborted or interrupted: every other rank gets an exception, and nothing hangs."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import numpy as np

import axccl
import harness


class InCall:
    """An output that calls `reached` while a call reads it: from then on the thread is inside the call."""

    def __init__(self, array, reached):
        self._array, self._reached = array, reached

    def __dlpack__(self, **options):
        self._reached()
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def _wait_in_call(first, second, **options):
    """A thread that waits in a call on `first`, for what `second` never sends. Gives up with the text of its error."""
    errors = []

    def wait():
        try:
            first.sendrecv(np.zeros(1), 1, np.zeros(1), 1)
        except axccl.Error as error:
            errors.append(str(error))
    thread = threading.Thread(target=wait, **options)
    thread.start()
    second.recv(np.zeros(1), 0)  # what the call has sent: it is under way
    return thread, errors


def _outlive(comm):
    if comm.rank == 1:
        os._exit(3)
    try:
        while True:
            comm.all_reduce(np.ones(4))
    except axccl.Error as error:
        return int(error.code), str(error)


def _leave(comm):
    if comm.rank == 1:
        return None
    try:
        comm.recv(np.empty(1), 1)
    except axccl.Error as error:
        return int(error.code), str(error)


class Failures(unittest.TestCase):
    def test_dead_process(self):
        for code, text in harness.Processes(3).run(_outlive, dies=(1,))[::2]:
            self.assertEqual(code, axccl.Code.REMOTE_ERROR)
            self.assertIn("rank 1", text)

    def test_rank_that_leaves(self):
        for ranks in (harness.Threads(2), harness.Processes(2)):
            code, text = ranks.run(_leave)[0]
            self.assertEqual(code, axccl.Code.REMOTE_ERROR)
            self.assertIn("rank 1", text)

    def test_rank_that_raises(self):
        others = []

        def rank(comm):
            if comm.rank == 2:
                raise KeyError("wrong")
            try:
                comm.barrier()
            except axccl.Error as error:
                others.append(str(error))
                raise
        with self.assertRaises(KeyError) as raised:
            axccl.local(4).run(rank)
        self.assertEqual(raised.exception.rank, 2)
        self.assertEqual(len(others), 3)
        if hasattr(raised.exception, "__notes__"):
            self.assertIn("This was rank 2 of 4.", raised.exception.__notes__)

    def test_abort_by_another_thread(self):
        def rank(comm):
            inside, errors = threading.Event(), []

            def wait():
                try:
                    comm.recv(InCall(np.empty(1), inside.set), 1 - comm.rank)
                except axccl.Error as error:
                    errors.append(str(error))
            thread = threading.Thread(target=wait)
            thread.start()
            inside.wait()
            comm.abort()
            thread.join()
            self.assertEqual(len(errors), 1)
            with self.assertRaises(axccl.Error) as raised:
                comm.barrier()
            self.assertIn("was aborted; make a new one", str(raised.exception))
        axccl.local(2).run(rank)

    def test_abort_while_another_thread_closes(self):
        first, second = axccl._core.local_communicators(2)
        waiting, errors = _wait_in_call(first, second)
        closing = threading.Thread(target=first.close)
        closing.start()
        while "closed" not in repr(first):
            time.sleep(0.001)
        first.abort()
        waiting.join()
        closing.join()
        self.assertEqual(len(errors), 1)
        with self.assertRaisesRegex(axccl.Error, "was aborted; make a new one"):
            first.barrier()

    def test_exception_in_with(self):
        first, second = axccl._core.local_communicators(2)
        with self.assertRaises(KeyError):
            with first:
                waiting, errors = _wait_in_call(first, second)
                raise KeyError
        waiting.join()
        self.assertEqual(len(errors), 1)
        with self.assertRaisesRegex(axccl.Error, "was aborted because an exception left its with statement"):
            first.barrier()
        with self.assertRaises(SystemExit):
            with second:
                sys.exit()
        with self.assertRaisesRegex(axccl.Error, "is closed; make a new one"):
            second.barrier()

    def test_end_of_the_interpreter(self):
        """A daemon thread is in a call, whose end comes when the interpreter's has begun."""
        done = subprocess.run([sys.executable, "-c", _LATE.format(folder=_FOLDER)], capture_output=True, text=True,
                              check=False, timeout=harness.SECONDS)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "late\n", ""))

    def test_timeout(self):
        given_up = threading.Event()

        def rank(comm):
            if comm.rank == 1:
                given_up.wait()
                return None
            comm.timeout = 0.1
            try:
                comm.recv(np.empty(1), 1)
            except axccl.Error as error:
                return error.code
            finally:
                given_up.set()
        self.assertEqual(axccl.local(2).run(rank)[0], axccl.Code.TIMEOUT)


_FOLDER = os.path.dirname(os.path.abspath(__file__))
_LATE = """
import os, sys, time
sys.path.insert(0, {folder!r})
import numpy as np
import axccl, failures_test
first, second = axccl._core.local_communicators(2)
class Late:
    second, data, sleep, write = second, np.zeros(1), time.sleep, os.write
    def __del__(self):
        self.write(1, b"late\\n")
        self.second.send(self.data, 0)
        self.sleep(0.5)  # the other thread is to run
failures_test.late = Late()
failures_test._wait_in_call(first, second, daemon=True)
"""

_PRELUDE = """
import faulthandler, signal, sys, threading
faulthandler.dump_traceback_later(100, exit=True)
import numpy as np
import axccl
sys.path.insert(0, {folder!r})
from failures_test import InCall, _wait_in_call
seen = []
ready = threading.Event()
def reached():
    ready.set()
    print("ready", flush=True)
def handler(number, frame):
    # The first one does not raise: the call goes on. The next one that comes while the call waits does.
    seen.append(number)
    before = frame.f_code.co_name in ("reached", "__dlpack__")
    if ready.is_set() and not before and len(seen) > 1 and "raised" not in seen:
        seen.append("raised")
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, handler)
"""


def interrupt(script):
    """Runs the script, sends it SIGINT from its "ready" until its "interrupted", and returns what it prints.

    It does not end before that: a signal would kill Python, which takes its handlers away when it ends.
    """
    text = _PRELUDE.format(folder=_FOLDER) + textwrap.dedent(script)
    text += "\nsys.stdin.read()\n"
    with subprocess.Popen([sys.executable, "-uc", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        lines, interrupted = [], threading.Event()

        def read():
            for line in child.stdout:
                lines.append(line)
                if line == "interrupted\n":
                    interrupted.set()
            interrupted.set()
        reader = threading.Thread(target=read)
        reader.start()
        while not interrupted.wait(0.05):
            child.send_signal(signal.SIGINT)
        child.stdin.close()
        reader.join()
        return "".join(lines), child.wait()


class Interrupts(unittest.TestCase):
    def check(self, script, *words):
        printed, status = interrupt(script)
        self.assertEqual(status, 0, printed)
        for word in words:
            self.assertIn(word, printed)

    def test_waiting_call(self):
        self.check("""
            ranks = axccl._core.local_communicators(2)
            try:
                ranks[0].recv(InCall(np.empty(1), reached), 1)
            except KeyboardInterrupt:
                print("interrupted")
            try:
                ranks[0].barrier()
            except axccl.Error as error:
                print(error)
            try:
                ranks[1].barrier()
            except axccl.Error as error:
                print(error.code.name)
            """, "interrupted", "was aborted because a signal interrupted recv; make a new one", "REMOTE_ERROR")

    def test_ranks_as_threads(self):
        self.check("""
            over = threading.Event()
            def rank(comm):
                if comm.rank == 1:
                    return over.wait()
                try:
                    comm.recv(InCall(np.empty(1), reached), 1)
                finally:
                    over.set()
            try:
                axccl.local(2).run(rank)
            except KeyboardInterrupt:
                print("interrupted")
            print([thread.name for thread in threading.enumerate()])
            """, "interrupted", "['MainThread']")

    def test_joining(self):
        self.check("""
            try:
                reached()
                axccl.Communicator(0, 2, axccl.unique_id())
            except KeyboardInterrupt:
                print("interrupted")
            print(axccl.local(2).run(lambda comm: comm.size))
            """, "interrupted", "[2, 2]")

    def test_closing(self):
        self.check("""
            ranks = axccl._core.local_communicators(2)
            thread, errors = _wait_in_call(*ranks)
            try:
                reached()
                ranks[0].close()
            except KeyboardInterrupt:
                print("interrupted")
            thread.join()
            try:
                ranks[0].barrier()
            except axccl.Error as error:
                print(error)
            """, "interrupted", "was aborted because a signal interrupted close; make a new one")


class Launchers(unittest.TestCase):
    """Communicator.from_env as torchrun, mpirun and srun start it."""

    SCRIPT = "import axccl, numpy as np; c = axccl.Communicator.from_env(); print(c.all_reduce(np.array([c.rank + 1])))"

    def run_ranks(self, environments):
        children = [subprocess.Popen([sys.executable, "-c", self.SCRIPT], stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment})
                    for environment in environments]
        return [child.communicate(timeout=harness.SECONDS)[0].strip() for child in children]

    def test_variables(self):
        with tempfile.TemporaryDirectory() as cache:
            for rank, size, more in (("RANK", "WORLD_SIZE", {"TORCHELASTIC_USE_AGENT_STORE": "True"}),
                                     ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {}),
                                     ("SLURM_PROCID", "SLURM_NTASKS", {})):
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    port = str(free.getsockname()[1])
                    point = {"NCCL_COMM_ID": "127.0.0.1:" + port} if rank == "SLURM_PROCID" else \
                        {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(int(port) - 1) if more else port}
                found = self.run_ranks([{rank: str(number), size: "2", "AXCCL_CACHE_DIR": cache, **point, **more}
                                        for number in range(2)])
                self.assertEqual(found, ["[3]", "[3]"], rank)

    def test_what_is_missing(self):
        for environment, words in (({}, ["none of RANK and WORLD_SIZE", "torchrun, mpirun or srun"]),
                                   ({"RANK": "0", "WORLD_SIZE": "2"}, ["NCCL_COMM_ID", "MASTER_PORT"]),
                                   ({"RANK": "x", "WORLD_SIZE": "2"}, ["RANK=x"])):
            (text,) = self.run_ranks([environment])
            for word in words:
                self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main()
