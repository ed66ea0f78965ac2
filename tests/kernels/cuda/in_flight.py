#!/usr/bin/env python3
"""in_flight.py NVCC CUBIN...: how many bytes a thread has in flight in the loops of the movers.

A thread that waits for a load before it issues the next one reads another device's memory at a fraction of the link's speed,
and the compiler decides where it waits: at the first instruction that names a register of the load. So this reads the machine
code, of processors from sm_80 on (for sm_75, ptxas has its own order). It needs nvdisasm: beside nvcc, in PATH, or in a Python package (nvidia-cuda-nvdisasm, triton). Exits with 77 without one.
"""
import glob
import os
import re
import shutil
import subprocess
import sys

LEAST = 64  # bytes
FORMATS = {
    "f32": "9InFloat32INS1_8Binary32EE",
    "f16": "9InFloat32INS1_8Binary16EE",
    "bf16": "9InFloat32INS1_7Brain16EE",
    "int32": "7IntegerIiE",
    "uint32": "7IntegerIjE",
}
IN_WORDS = ["f32", "f16", "bf16"]  # also for operands without a common alignment
OPERATIONS = {"sum": "3Sum", "prod": "4Prod", "max": "3Max", "min": "3Min"}


def find_nvdisasm(nvcc):
    candidates = [os.path.join(os.path.dirname(nvcc), "nvdisasm"), shutil.which("nvdisasm") or ""]
    for folder in sys.path:
        for pattern in ("triton/backends/nvidia/bin/nvdisasm", "nvidia/*/bin/nvdisasm"):
            candidates += glob.glob(os.path.join(folder, pattern))
    return next((c for c in candidates if os.access(c, os.X_OK)), None)


def functions_of(nvdisasm, cubin):
    """{mangled name: [(labels before it, instruction)]}"""
    text = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
    functions, code, labels = {}, [], []
    for line in text.splitlines():
        if section := re.match(r"\.text\.(\w+):", line):
            functions[section[1]] = code = []
            labels = []
        elif label := re.match(r"(\.L_x_\d+):", line):
            labels.append(label[1])
        elif instruction := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;", line):
            code.append((labels, instruction[1]))
            labels = []
    return functions


def is_load(instruction, size):
    width = {16: r"\.128", 4: r"(?!\.(?:64|128|U8|U16|S8|S16))"}[size]
    return re.search(rf"\bLDG\.E{width}\b", instruction) is not None


def registers_of(instruction):
    return {int(r) + high for r, wide in re.findall(r"\bR(\d+)(\.64)?", instruction) for high in range(2 if wide else 1)}


def loop_of_loads(code, size):
    """The instructions of the smallest loop that loads 32 bytes or more by loads of `size` bytes."""
    at = {label: i for i, (labels, _) in enumerate(code) for label in labels}
    loops = []
    for end, (_, instruction) in enumerate(code):
        branch = re.search(r"\bBRA\b.*`\((\.L_x_\d+)\)", instruction)
        begin = at.get(branch[1], end) if branch else end
        body = [instruction for _, instruction in code[begin:end]]
        if size * sum(is_load(i, size) for i in body) >= 32:
            loops.append(body)
    return min(loops, key=len, default=[])


def most_in_flight(body, size):
    most, loads = 0, []  # loads: the registers of each that is in flight
    for instruction in body * 2:
        used = registers_of(instruction)
        if is_load(instruction, size):
            first, *address = (int(r) for r in re.findall(r"\bR(\d+)", instruction))
            loaded = set(range(first, first + max(1, size // 4)))
            loads = [l for l in loads if not l & (loaded | set(address))] + [loaded]
            most = max(most, size * len(loads))
        else:
            loads = [l for l in loads if not l & used]
    return most


def movers_of(functions):
    """(name, its code, bytes of its loads) of each."""
    for name, code in functions.items():
        if "12CopyElements" in name:
            yield "copy", code, 16
        for format_name, of_format in FORMATS.items():
            for operation, of_operation in OPERATIONS.items():
                if f"ReduceAsINS1_{of_format}ENS1_{of_operation}E" in name:
                    yield f"{operation} of {format_name}", code, 16
                if f"ReduceWordsINS1_{of_format}ENS1_{of_operation}E" in name:
                    yield f"{operation} of {format_name} in words", code, 4


def main():
    nvcc, *cubins = sys.argv[1:]
    nvdisasm = find_nvdisasm(nvcc)
    if nvdisasm is None:
        print("SKIPPED: no nvdisasm beside nvcc, in PATH or in a Python package; pip install nvidia-cuda-nvdisasm")
        return 77
    failed = False
    for cubin in filter(os.path.exists, cubins):
        found = {name: most_in_flight(loop_of_loads(code, size), size)
                 for name, code, size in movers_of(functions_of(nvdisasm, cubin))}
        print(f"{os.path.basename(cubin)}: " + ", ".join(f"{name} {most}" for name, most in sorted(found.items())))
        # Sums and products are those of unsigned integers.
        wanted = ["copy"] + [f"{o} of {f}" for o in OPERATIONS for f in FORMATS]
        wanted += [f"sum of {f} in words" for f in IN_WORDS]
        missing = [n for n in wanted if n not in found]
        few = [name for name, most in found.items() if most < LEAST]
        if set(missing) - {"sum of int32", "prod of int32"} or few:
            failed = True
            print(f"  not found: {missing}; fewer than {LEAST} bytes in flight: {few}")
    return 1 if failed or not cubins else 0


if __name__ == "__main__":
    sys.exit(main())
