"""IREE's runtime finds the devices of the software GPU: iree_check.py SOFTGPU

SOFTGPU is the folder of its libcuda.so. IREE's CUDA driver asks the driver for each function by name, and starts only if it
finds all. Exit status 77: IREE is not installed."""

import importlib.util
import os
import re
import subprocess
import sys

DEVICES = 3

if importlib.util.find_spec("iree") is None or importlib.util.find_spec("iree._runtime_libs") is None:
    print("SKIPPED: IREE: no module iree._runtime_libs (pip install iree-base-runtime==3.13.0)")
    sys.exit(77)

tool = os.path.join(os.path.dirname(importlib.util.find_spec("iree._runtime_libs").origin), "iree-run-module")
environment = {**os.environ, "LD_LIBRARY_PATH": os.path.abspath(sys.argv[1]), "SOFTGPU_DEVICES": str(DEVICES)}
done = subprocess.run([tool, "--dump_devices=cuda"], env=environment, capture_output=True, text=True, timeout=120)
if done.returncode != 0:
    sys.exit(f"iree-run-module --dump_devices=cuda: exit {done.returncode}\n{done.stdout}{done.stderr}")
found = re.findall(r"^# --device=(cuda://GPU-\S+)\n#   (softgpu .*)$", done.stdout, re.M)
if len(set(found)) != DEVICES:
    sys.exit(f"iree-run-module --dump_devices=cuda lists {found}, not {DEVICES} devices\n{done.stdout}")
if len(re.findall(r"^- gpu-compute-capability: 9\.0$", done.stdout, re.M)) != DEVICES:
    sys.exit(f"the compute capability is missing\n{done.stdout}")
print(f"iree: {DEVICES} devices: {', '.join(device for device, _ in found)}")
