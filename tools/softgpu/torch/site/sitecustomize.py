"""Found by every Python that `softgpu run` starts. Prepares for torch, and runs the sitecustomize that this one hides."""

import importlib.machinery
import importlib.util
import os
import sys

_folder = os.path.dirname(os.path.abspath(__file__))


def _run_hidden():
    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != _folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


import softgpu_torch  # noqa: E402  beside this file

softgpu_torch.install()
_run_hidden()
