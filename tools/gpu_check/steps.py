"""What all parts of gpu-check share: paths, running programs, and the result of a part."""

import concurrent.futures
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
PACKAGE_PARENT = os.path.join(ROOT, "tools")


class LeftOut(Exception):
    """This part cannot run here; the text names the reason and the remedy."""


class Failed(Exception):
    """This part has failed; the text describes how."""


@dataclasses.dataclass
class Table:
    title: str
    header: list
    rows: list


@dataclasses.dataclass
class Figure:
    """A measurement of a case (bars.py has their names), and its place: ranks, sizes."""
    case: str
    value: float
    where: str


@dataclasses.dataclass
class Outcome:
    """The result of one part. `state`: passed, failed or left out."""
    name: str
    state: str = "passed"
    summary: str = ""
    seconds: float = 0.0
    notes: list = dataclasses.field(default_factory=list)
    tables: list = dataclasses.field(default_factory=list)
    figures: list = dataclasses.field(default_factory=list)


class Setup:
    """The folders and the devices of this run."""

    def __init__(self, build, software, devices, scratch):
        self.build = build
        self.software = software
        self.software_devices = devices
        self.scratch = scratch  # a temporary folder
        self.gpus = []          # found by cuda.describe
        self.logs = os.path.join(build, "gpu-check")
        self.deadline = None    # of the part under way

    def environment(self, **more):
        """The environment of programs that use the driver; in software mode that of the software GPU."""
        env = dict(os.environ)
        for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
            if name not in env:
                env[name] = ""
        if self.software:
            folder = os.path.join(self.build, "softgpu")
            env["LD_LIBRARY_PATH"] = join_paths(folder, env["LD_LIBRARY_PATH"])
            env["LD_PRELOAD"] = join_paths(os.path.join(folder, "libcuda.so.1"), env["LD_PRELOAD"])
            env["SOFTGPU_DEVICES"] = str(self.software_devices)
        for name, value in more.items():
            env[name] = str(value)
        return env

    def dropin_environment(self, **more):
        """The environment of programs that were linked with NCCL."""
        env = self.environment(**more)
        env["LD_LIBRARY_PATH"] = join_paths(os.path.join(self.build, "dropin"), env["LD_LIBRARY_PATH"])
        return env

    def library(self):
        """The path of the library."""
        path = os.path.join(self.build, "libaxccl.so")
        if not os.path.exists(path):
            raise LeftOut(f"there is no {path}")
        return path

    def perf_program(self, target):
        """The path of a program of perf."""
        path = os.path.join(self.build, "perf", target)
        if not os.path.exists(path):
            raise LeftOut(f"there is no {path}; build the target {target}")
        return path

    def python(self, module, *arguments, interpreter=sys.executable):
        """The command that runs a module of this package."""
        return [interpreter, "-B", "-c",
                f"import sys; sys.path.insert(0, {PACKAGE_PARENT!r}); from gpu_check.{module} import main; sys.exit(main())",
                *arguments]

    def run(self, command, seconds, env=None, cwd=None):
        """Runs a program in its own session, which ends at the time limit. Returns a Run."""
        limit = seconds if self.deadline is None else min(seconds, self.deadline - time.monotonic())
        if limit <= 0:
            raise Failed("the time of this part is over")
        started = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                 text=True, errors="replace", env=env, cwd=cwd, start_new_session=True)
        timed_out = False
        try:
            output, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            timed_out = True
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
        return Run(command, child.returncode, output, time.monotonic() - started, timed_out)

    def run_together(self, commands, seconds, env=None):
        """Runs programs at the same time. Returns a Run for each."""
        with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
            return list(pool.map(lambda command: self.run(command, seconds, env), commands))

    def must(self, what, run):
        """Raises Failed, with the end of the output, unless `run` succeeded."""
        if run.ok:
            return run
        raise Failed(f"{what} {run.how()}; the end of what it printed:\n{tail(run.output)}")

    def keep(self, name, run):
        """Writes a program's output to a log; returns its path as reports show it."""
        os.makedirs(self.logs, exist_ok=True)
        path = os.path.join(self.logs, name + ".log")
        with open(path, "w") as file:
            file.write(f"$ {' '.join(run.command)}\n{run.output}\n({run.how()}, {run.seconds:.1f} s)\n")
        return shown(path)


@dataclasses.dataclass
class Run:
    command: list
    status: int
    output: str
    seconds: float
    timed_out: bool

    @property
    def ok(self):
        return self.status == 0 and not self.timed_out

    def json(self):
        """Parses the last line."""
        return json.loads(self.output.strip().splitlines()[-1])

    def how(self):
        if self.timed_out:
            return f"did not end within {self.seconds:.0f} s"
        if self.status < 0:
            return f"was ended by signal {-self.status}"
        return f"ended with status {self.status}"


def shown(path):
    """Removes this machine's folders, because reports are read elsewhere."""
    inside = os.path.relpath(path, ROOT)
    return os.path.basename(path) if inside.startswith("..") else inside


def join_paths(*paths):
    return ":".join(path for path in paths if path)


def tail(text, lines=15):
    return "\n".join(text.strip().splitlines()[-lines:])


def number_text(value):
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def size_name(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def parse_size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(text[-1:].upper())
    return int(float(text[:-1] if unit else text) * (unit or 1))
