#!/usr/bin/env bash
# if_torch.sh PYTHON COMMAND...: the command, if that interpreter has a PyTorch that was built for CUDA.
if ! "$1" -c 'import importlib.util, pathlib, sys
spec = importlib.util.find_spec("torch")
sys.exit(spec is None or "+cu" not in (pathlib.Path(spec.origin).parent / "version.py").read_text())'; then
  echo "SKIPPED: $1 has no PyTorch that was built for CUDA; tools/clients softgpu installs one in a folder"
  exit 0
fi
shift
exec "$@"
