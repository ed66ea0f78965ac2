"""A private daemon of CUDA's Multi-Process Service, which no other program of the machine sees."""

import os
import shutil
import signal

CONTROL = "nvidia-cuda-mps-control"
SECONDS = 30


class Mps:
    """A context that starts the daemon, and ends it; `environment` leads programs to it. `folder`: new, for its files.

    A daemon that other users have started has another folder, CUDA's default or theirs, and is neither used nor ended.
    """

    def __init__(self, setup, folder):
        self.setup = setup
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": os.path.join(folder, "pipe"),
                            "CUDA_MPS_LOG_DIRECTORY": os.path.join(folder, "log")}

    def run(self, script):
        log = os.path.join(self.environment["CUDA_MPS_LOG_DIRECTORY"], "gpu-check.log")
        return self.setup.run(["bash", "-c", f"{{ {script}; }} >>'{log}' 2>&1"], SECONDS, {**os.environ, **self.environment},
                              daemon=True)

    def __enter__(self):
        for path in self.environment.values():
            os.makedirs(path)
        run = self.run(f"{CONTROL} -d")
        if not run.ok:
            self.__exit__()
        self.setup.must(f"{CONTROL} -d", run)
        return self

    def __exit__(self, *_):
        # Must run even after the time limit of the part.
        deadline, self.setup.deadline = self.setup.deadline, None
        if not self.run(f"echo quit | {CONTROL}").ok:
            self.kill()
        self.setup.deadline = deadline

    def kill(self):
        try:
            with open(os.path.join(self.environment["CUDA_MPS_PIPE_DIRECTORY"], CONTROL + ".pid")) as file:
                os.kill(int(file.read()), signal.SIGKILL)
        except (OSError, ValueError):
            pass  # it never started, or has ended


def installed():
    return shutil.which(CONTROL) is not None
