"""What all parts of gpu-check share: paths, running programs, and the result of a part."""

import concurrent.futures
import dataclasses
import json
import os
import sys
import tempfile
import time

from gpu_check import children

PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
ROOT = os.path.dirname(PACKAGE_PARENT)
AUTOPSY_SECONDS = 30


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
    """The result of one part or step. `state`: passed, failed or left out; of steps also not run, or cut short."""
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
        self.end = None         # of the whole call
        self.hangs = 0          # programs that did not end in time
        self.softgpu = os.path.join(build, "softgpu")
        self.libraries = []     # folders that programs search first

    def environment(self, **more):
        """The environment of programs that use the driver; in software mode that of the software GPU."""
        env = dict(os.environ)
        for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
            if name not in env:
                env[name] = ""
        env["LD_LIBRARY_PATH"] = join_paths(*self.libraries, env["LD_LIBRARY_PATH"])
        if self.software:
            env["LD_LIBRARY_PATH"] = join_paths(self.softgpu, env["LD_LIBRARY_PATH"])
            env["LD_PRELOAD"] = join_paths(os.path.join(self.softgpu, "libcuda.so.1"), env["LD_PRELOAD"])
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
        """The path of the library, which a packed folder has under the name that programs load."""
        paths = [os.path.join(self.build, name) for name in ("libaxccl.so", "libaxccl.so.0")]
        found = next(filter(os.path.exists, paths), None)
        if found is None:
            raise LeftOut(f"there is no {paths[0]}")
        return found

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

    def run(self, command, seconds, env=None, cwd=None, daemon=False):
        """Runs a program in its own session, which is looked into and ended at the time limit. Returns a Run.

        What the program leaves running is ended with it, unless it starts a `daemon`.
        """
        limit = seconds if self.deadline is None else min(seconds, self.deadline - time.monotonic())
        if limit <= 0:
            raise Failed("the time of this part is over")
        started = time.monotonic()
        with tempfile.TemporaryFile() as output:
            child = children.start(command, output, env, cwd)
            status, autopsy = None, ""
            try:
                status = children.wait(child, limit)
                taken = time.monotonic() - started
                if status is None:
                    taken = limit  # whatever else the machine had to do before it told us
                    self.hangs += 1
                    autopsy = children.autopsy(child.pid, self.autopsy_seconds())
            finally:
                left = [] if daemon and status is not None else children.end(child)
            if left:
                autopsy += f"\nprocesses that cannot be killed: {', '.join(map(str, left))}"
            return Run(command, status, children.read_end(output), taken, status is None, autopsy)

    def autopsy_seconds(self):
        left = AUTOPSY_SECONDS if self.end is None else self.end - time.monotonic() - children.END_SECONDS
        return min(max(left, 1), AUTOPSY_SECONDS)

    def run_together(self, commands, seconds, env=None):
        """Runs programs at the same time. Returns a Run for each."""
        with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
            return list(pool.map(lambda command: self.run(command, seconds, env), commands))

    def must(self, what, run):
        """Raises Failed, with the end of the output, unless `run` succeeded."""
        if run.ok:
            return run
        printed = tail(run.output)
        printed = f"; the end of what it printed:\n{printed}" if printed else " and printed nothing"
        raise Failed(f"{what} {run.how()}{printed}")

    def keep(self, name, run):
        """Writes a program's output to a log; returns its path as reports show it."""
        os.makedirs(self.logs, exist_ok=True)
        path = os.path.join(self.logs, name + ".log")
        with open(path, "w") as file:
            file.write(f"$ {' '.join(run.command)}\n{run.output}\n({run.how()}, {run.seconds:.1f} s)\n{run.autopsy}\n")
        return shown(path)


@dataclasses.dataclass
class Run:
    command: list
    status: int
    output: str
    seconds: float
    timed_out: bool
    autopsy: str = ""  # of a program that did not end

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


def run_part(name, function, setup, limit):
    """The Outcome of a part or step, also if it fails."""
    started = time.monotonic()
    setup.deadline = started + limit
    try:
        outcome = function(setup)
    except LeftOut as reason:
        outcome = Outcome(name, "left out", str(reason))
    except Exception as error:  # pylint: disable=broad-except: the other parts go on after any error
        outcome = Outcome(name, "failed", str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}")
    outcome.seconds = time.monotonic() - started
    return outcome


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
