"""Runs the steps of a packed folder: --prebuilt. It needs Python and a driver, and no compiler, CMake, CTest or MPI.

After every step the report (Markdown and JSON) and one archive of all logs are written again: the call may be cut off. They
are kept in the folder's `results`, where --add finds them, and copied to --out.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time

from gpu_check import bars, children, pack, plan, report
from gpu_check.readers import READERS
from gpu_check.steps import Failed, LeftOut, Outcome, Setup, join_paths, run_part

FILES = [report.NAME + ".md", report.NAME + ".json", report.NAME + "-logs.tgz"]
LEAST_SECONDS = 10  # with less, no step is started
RESERVE = 0.04      # of the budget: to end the last step, and to write
NOT_RUN, CUT_SHORT = "not run", "cut short"


def loads(folder):
    """Whether the library can be loaded without the packed runtime; in another process, because it would stay loaded."""
    path = os.path.join(folder, plan.LIBRARY)
    env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(folder, pack.LIBRARIES)}
    try:
        return subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({path!r})"], env=env, timeout=30, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def libraries(folder):
    found = [os.path.join(folder, "dropin"), folder, os.path.join(folder, pack.LIBRARIES)]
    return found if loads(folder) else [*found, os.path.join(folder, pack.RUNTIME)]


class Prebuilt:
    """One call. `parts`: gpu-check's own, by name."""

    def __init__(self, chosen, parts, scratch):
        self.folder = os.path.abspath(chosen.prebuilt)
        try:
            with open(os.path.join(self.folder, pack.MANIFEST)) as file:
                self.manifest = json.load(file)
        except (OSError, ValueError) as error:
            raise Failed(f"--prebuilt {chosen.prebuilt}: {error}; pack the folder with --pack first") from error
        self.end = time.monotonic() + chosen.budget * (1 - RESERVE)
        self.parts, self.out = parts, chosen.out
        self.results = os.path.join(self.folder, "results")
        self.setup = Setup(self.folder, chosen.software, chosen.devices, scratch)
        self.setup.logs = os.path.join(self.results, "logs")
        self.setup.end = self.end
        self.setup.libraries = libraries(self.folder)
        self.setup.softgpu = os.path.join(chosen.build, "softgpu")
        for name, value in self.manifest["environment"].items():
            os.environ.setdefault(name, self.word(value))  # of the parts, too
        self.outcomes = self.earlier() if chosen.add else {}
        if not chosen.add:
            shutil.rmtree(self.results, ignore_errors=True)
        os.makedirs(self.setup.logs, exist_ok=True)
        os.makedirs(self.out, exist_ok=True)

    def earlier(self):
        """The outcomes of earlier calls, of this folder or, where it has been brought to another machine, of --out."""
        if not os.path.exists(os.path.join(self.results, FILES[1])) and os.path.exists(os.path.join(self.out, FILES[1])):
            os.makedirs(self.results, exist_ok=True)
            shutil.copy(os.path.join(self.out, FILES[1]), self.results)
            with tarfile.open(os.path.join(self.out, FILES[2])) as archive:
                archive.extractall(self.results)
        return {outcome.name: outcome for outcome in report.read(os.path.join(self.results, report.NAME))}

    def left(self):
        return self.end - time.monotonic()

    def word(self, text):
        for name, value in (("python", sys.executable), ("scratch", self.setup.scratch), ("folder", self.folder)):
            text = text.replace("{" + name + "}", value)
        return text

    def environment(self, step):
        env = self.setup.environment()
        for name, value in step["environment"].items():
            env[name] = join_paths(self.word(value), env[name]) if name.startswith("LD_") else self.word(value)
        return env

    def command(self, step):
        first, *rest = map(self.word, step["command"])
        if "/" not in first:  # a tool of the machine
            found = children.find_tool(first)
            if found is None:
                raise LeftOut(f"{first} is not installed")
            first = found
        return [first, *rest]

    def run_command(self, step, seconds):
        """The Outcome of a step that is a command."""
        name = step["name"]
        if step.get("needs") == "gpu" and self.setup.software:
            raise LeftOut(f"{step['command'][0]} needs a GPU")
        run = self.setup.run(self.command(step), seconds, self.environment(step), self.folder)
        log = self.setup.keep(name.replace(" ", "-").replace(",", ""), run)
        try:
            outcome = READERS[step["reads"]](self.setup, step, run)
        except Failed as reason:
            outcome = Outcome(name, "failed", str(reason))
        if outcome.state == "failed":
            outcome.notes.append(f"log{', with where it stood' if run.timed_out else ''}: {log}")
        return outcome

    def run_step(self, step):
        """The Outcome of a step, and whether one of its programs did not end."""
        seconds, hangs = min(step["seconds"], self.left()), self.setup.hangs
        function = self.parts[step["part"]] if "part" in step else lambda _: self.run_command(step, seconds)
        outcome = run_part(step["name"], function, self.setup, seconds)
        outcome.name = step["name"]
        hung = self.setup.hangs > hangs
        # With less than its own time, a step tells nothing by not ending.
        if hung and outcome.state == "failed" and seconds < step["seconds"]:
            outcome.state = CUT_SHORT
        return outcome, hung

    def record(self, outcome):
        self.outcomes[outcome.name] = outcome
        print(f"{outcome.name}: {outcome.state} ({outcome.seconds:.0f} s) {outcome.summary}", flush=True)
        self.write()

    def write(self):
        order = [name for step in self.manifest["steps"] for name in (step["name"], after(step))]
        every = [self.outcomes[name] for name in order if name in self.outcomes]
        software, planned = self.setup.software, [step["name"] for step in self.manifest["steps"]]
        table = bars.table(every, software, planned)
        report.write(os.path.join(self.results, report.NAME), report.title(software), table, every)
        archive = os.path.join(self.results, FILES[2])
        with tarfile.open(archive + ".new", "w:gz") as file:
            file.add(self.setup.logs, "logs")
        os.replace(archive + ".new", archive)
        if os.path.realpath(self.out) != os.path.realpath(self.results):
            for name in FILES:
                shutil.copy(os.path.join(self.results, name), self.out)

    def healthy(self, step):
        """Whether the GPU answers after a step that was killed. It may take a while until it does."""
        for _ in range(2):
            outcome, _ = self.run_step(self.manifest["health"])
            outcome.name = after(step)
            self.record(outcome)
            if outcome.state == "passed":
                return True
        return False

    def is_done(self, step):
        outcome = self.outcomes.get(step["name"])
        return outcome is not None and outcome.state not in (NOT_RUN, CUT_SHORT)

    def carry_out(self, step):
        """Runs a step. Returns why the others cannot run, or nothing."""
        outcome, hung = self.run_step(step)
        self.record(outcome)
        if step.get("part") == "machine" and not self.setup.gpus:
            return "there is no GPU to use"
        if hung and self.left() >= LEAST_SECONDS and not self.healthy(step):
            return f"the GPU did not answer any more after {step['name']}"
        return ""

    def run(self):
        """Runs all steps that are not done; returns whether none has failed."""
        stopped = ""
        for step in self.manifest["steps"]:
            if not stopped and self.left() < LEAST_SECONDS:
                stopped = "the budget is spent"
            if stopped and not self.is_done(step):
                self.outcomes[step["name"]] = Outcome(step["name"], NOT_RUN, stopped)
            # Every call needs the description of its machine.
            elif not stopped and (step.get("part") == "machine" or not self.is_done(step)):
                stopped = self.carry_out(step)
        self.write()
        missing = sum(outcome.state == NOT_RUN for outcome in self.outcomes.values())
        if missing:
            print(f"not run, as {stopped}: {missing} of {len(self.manifest['steps'])} steps; --add runs them")
        return all(outcome.state != "failed" for outcome in self.outcomes.values())


def after(step):
    return f"health after {step['name']}"
