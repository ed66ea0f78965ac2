"""Programs: found, started in sessions of their own, looked into when they hang, and ended with all that they started.

No wait here is without a limit, and output goes to files: whoever holds the other end of a pipe, a daemon or a process that
cannot be killed, would keep its reader waiting.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time

END_SECONDS = 5        # for killed processes to go
MOST_EXAMINED = 4      # processes of a session
MOST_OUTPUT = 4 << 20  # bytes: of more, the end is kept
# Where in the kernel a thread waits; root alone may read the stack.
THREAD_FILES = ["comm", "wchan", "syscall"]
STATUS = ("Name:", "State:", "PPid:", "TracerPid:", "VmRSS:", "Threads:", "SigPnd:", "SigBlk:")


def find_tool(name):
    """Like which, but also searches CUDA's default folder."""
    folders = [os.path.join(os.environ.get(v, ""), "bin") for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    path = os.pathsep.join([os.environ.get("PATH", ""), *folders, "/usr/local/cuda/bin", "/opt/cuda/bin"])
    return shutil.which(name, path=path)


def start(command, output, env=None, cwd=None):
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, cwd=cwd,
                            start_new_session=True)


def wait(child, seconds):
    """The status of `child`, or None if it did not end."""
    try:
        return child.wait(timeout=max(seconds, 0))
    except subprocess.TimeoutExpired:
        return None


def members(session):
    """The living processes of a session, the leader first."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                state, _, group, its_session = file.read().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue  # it has just ended
        if state not in "ZX" and str(session) in (group, its_session):
            found.append(int(name))
    return sorted(found, key=lambda pid: (pid != session, pid))


def end(child):
    """Kills the session of `child`. Returns the processes that are still there: killed ones may be stuck in the kernel."""
    until = time.monotonic() + END_SECONDS
    left = members(child.pid)
    while left and time.monotonic() < until:
        for pid in left:  # once more those that were started meanwhile
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait(child, 0.1)
        left = members(child.pid)
    wait(child, 0.1)  # reaps it
    return left


def read_end(file):
    """The end of what was written to an open file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MOST_OUTPUT))
    return file.read().decode(errors="replace")


def read_text(path):
    try:
        with open(path, "rb") as file:
            return file.read(1 << 16).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError as error:
        return f"({error.strerror})"


def debugger(pid):
    """The command that prints the stacks of a process, and its kernels, or None."""
    arguments = ["-nx", "-batch", "-p", str(pid), "-ex", "set pagination off"]
    stacks = ["-ex", "thread apply all backtrace 16"]
    path = find_tool("cuda-gdb")
    if path:
        return [path, *arguments, "-ex", "info cuda kernels", "-ex", "info cuda devices", *stacks]
    path = find_tool("gdb")
    return [path, *arguments, *stacks] if path else None


def stacks(pid, seconds):
    command = debugger(pid)
    if command is None:
        return "(there is no cuda-gdb or gdb)"
    with tempfile.TemporaryFile() as output:
        # An empty list of servers, because a debugger would ask them for symbols.
        child = start(command, output, {**os.environ, "DEBUGINFOD_URLS": "", "LD_PRELOAD": ""})
        ended = wait(child, seconds) is not None
        end(child)
        text = read_end(output)
    return text if ended else text + f"\n(the debugger did not end within {seconds:.0f} s)"


def kernel_view(pid):
    """What the kernel tells of a process and its threads."""
    lines = [line for line in read_text(f"/proc/{pid}/status").splitlines() if line.startswith(STATUS)]
    lines.append(f"stack: {read_text(f'/proc/{pid}/stack')}")
    try:
        threads = sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError:
        threads = []
    for thread in threads[:64]:
        lines.append(f"thread {thread}: " + ", ".join(read_text(f"/proc/{pid}/task/{thread}/{name}") for name in THREAD_FILES))
    return "\n".join(lines)


def autopsy(session, seconds):
    """Where the processes of a session stand, as text, in about so many seconds."""
    until = time.monotonic() + seconds
    every = members(session)
    examined = every[:MOST_EXAMINED]
    text = [f"autopsy of session {session}: processes {', '.join(map(str, every)) or 'none'}"]
    # First for all what costs nothing: a debugger may need all the time there is, or stop what it looks at.
    text += [f"== process {pid}: {read_text(f'/proc/{pid}/cmdline')}\n{kernel_view(pid)}" for pid in examined]
    for i, pid in enumerate(examined):
        share = (until - time.monotonic()) / (len(examined) - i)
        if share >= 1:
            text.append(f"== stacks of process {pid}\n{stacks(pid, share)}")
    return "\n".join(text)
