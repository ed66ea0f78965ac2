"""Stock PyTorch on the software GPU: as soon as a program imports torch, CUDA's operators run the CPU's kernels.

The extension is compiled against the installed PyTorch, once for each version of PyTorch, of Python and of its sources.
"""

import ctypes
import fcntl
import hashlib
import importlib.abc
import importlib.util
import os
import pathlib
import re
import shutil
import sys
import sysconfig

_SOURCE = pathlib.Path(__file__).resolve().parent.parent / "csrc"
_NAME = "softgpu_torch"
_OLDEST = (2, 8)


def _loaded(name):
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return any(line.rstrip().endswith("/" + name) for line in maps)


def _cuda_version(folder):
    """What PyTorch was built for, found without importing it: "13.0", or "" where it was built without CUDA."""
    text = (folder / "version.py").read_text(encoding="utf-8")
    found = re.search(r"^cuda[^=\n]*=\s*['\"]([\d.]+)", text, re.MULTILINE)
    return found.group(1) if found else ""


def _load_libraries(folder):
    """The ones that PyTorch asks for by name: it takes the first of a name that is loaded, whatever its own path is."""
    major = _cuda_version(folder).split(".")[0]
    wanted = [pathlib.Path(os.environ.get("SOFTGPU_FOLDER", "/nonexistent"), f"libcudart.so.{major}")]
    if os.environ.get("SOFTGPU_NCCL"):
        wanted.append(pathlib.Path(os.environ["SOFTGPU_NCCL"]))
    for path in wanted if major else []:
        if _loaded(path.name):
            continue
        try:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ImportError(f"softgpu: {path} cannot be loaded: {error}") from error


def _key(torch):
    """What the extension depends on."""
    digest = hashlib.sha256()
    for path in sorted(_SOURCE.iterdir()):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    digest.update(f"{torch.__version__} {torch.__file__} {sys.version} {sysconfig.get_platform()}".encode())
    return digest.hexdigest()[:16]


def _cache():
    base = os.environ.get("AXCCL_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "axccl")
    return pathlib.Path(base) / "softgpu"


def _cuda_headers(torch, extension):
    """Those of PyTorch's own wheels, or of the toolkit."""
    major = torch.version.cuda.split(".")[0]
    for entry in sys.path:
        for folder in (f"nvidia/cu{major}/include", "nvidia/cuda_runtime/include"):
            found = pathlib.Path(entry or ".") / folder
            if (found / "cuda_runtime_api.h").exists():
                return [str(found)]
    home = extension.CUDA_HOME or "/usr/local/cuda"
    return [os.path.join(home, "include")]


def _compile(torch, path):
    import torch.utils.cpp_extension as extension

    # Not where it is loaded from: another process must not find half of it, nor the lock of PyTorch that a killed one leaves.
    building = path.parent / "build"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    print(f"softgpu: compiling the extension for PyTorch {torch.__version__} in {path.parent}, once", file=sys.stderr)
    library = os.path.join(os.path.dirname(torch.__file__), "lib")
    try:
        extension.load(
            _NAME,
            [str(source) for source in sorted(_SOURCE.glob("*.cc"))],
            extra_cflags=["-O2"],
            extra_include_paths=[str(_SOURCE)] + _cuda_headers(torch, extension),
            extra_ldflags=[f"-L{library}", "-lc10_cuda", "-ltorch_cuda"],
            build_directory=str(building),
            is_python_module=False,
        )
        os.replace(building / path.name, path)
    except (RuntimeError, OSError) as error:
        lines = [line for line in str(error).splitlines() if "error" in line.lower()] or [str(error)]
        raise ImportError(f"softgpu: the extension for PyTorch cannot be compiled in {path.parent}: {lines[-1].strip()}; it "
                          "needs a C++17 compiler, ninja (pip install ninja) and CUDA's headers; SOFTGPU_TORCH=0 does "
                          "without it") from error


def _compiled(torch):
    """The extension, compiled if there is none yet."""
    path = _cache() / _key(torch) / f"{_NAME}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.parent / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # processes that start together compile once
            if not path.exists():
                _compile(torch, path)
    return path


def _replace_sleep(torch, extension):
    """torch.cuda._sleep launches a kernel that counts cycles; tests delay streams by it."""
    extension.softgpu_torch_sleep.argtypes = [ctypes.c_void_p, ctypes.c_int64]

    def sleep(cycles):
        extension.softgpu_torch_sleep(torch.cuda.current_stream().cuda_stream, cycles)

    torch.cuda._sleep = sleep


def _install(torch):
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if torch.version.cuda is None:
        return
    if version < _OLDEST:
        print(f"softgpu: PyTorch {torch.__version__} is older than 2.8: its operators for CUDA will not run", file=sys.stderr)
        return
    extension = ctypes.CDLL(str(_compiled(torch)))
    extension.softgpu_torch_install()
    _replace_sleep(torch, extension)
    cuda = torch.backends.cuda
    cuda.enable_flash_sdp(False)
    cuda.enable_mem_efficient_sdp(False)
    cuda.enable_cudnn_sdp(False)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds torch as others do, and adds to it once it is loaded."""

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            _load_libraries(pathlib.Path(spec.origin).parent)
            load(module)
            _install(module)

        spec.loader.exec_module = exec_module
        return spec


def install():
    if os.environ.get("SOFTGPU_TORCH", "1") != "0":
        sys.meta_path.insert(0, _Finder())
