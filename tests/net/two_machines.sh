#!/usr/bin/env bash
# Runs the commands of docs/two-machines.md on two hosts, as they stand there.
#   on_hosts make 2 two_machines.sh ON_HOSTS DOCUMENT BUILD_FOLDER
# A section's blocks run at the same time, each on the machine its first line names. Every one must end well, and its tool
# must say that no value was wrong. What needs Open MPI is left out where there is none.
set -uo pipefail
on_hosts=$1 document=$2 build=$3
export A=10.77.0.1 B=10.77.0.2 AXCCL_DEVICE=host
# What ssh and a user of one's own would do.
export OMPI_MCA_plm_rsh_agent="$on_hosts agent" OMPI_MCA_oob_tcp_if_include=eth0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
ln -s "$build" "$folder/build" && cd "$folder" || exit 1
# What the document says to make beforehand.
export AXCCL_CACHE_DIR=${AXCCL_CACHE_DIR:-${HOME:-$folder}/.cache/axccl} HOME=$folder
(umask 077; head -c 32 /dev/urandom | base64 > "$HOME/axccl.secret")

# Blocks as files: 01.a, 01.b, 02.a ..
awk -v folder="$folder" '
  /^## / { section++ }
  /^```$/ { out = "" }
  out != "" { print > out }
  /^# on machine / && fenced { out = sprintf("%s/%02d.%s", folder, section, tolower($4)); print "set -e" > out }
  { fenced = /^```sh$/ }
' "$document"

failed=0
for first in "$folder"/*.a; do
  section=${first%.a}
  if grep -q mpirun "$first" && ! command -v mpirun >/dev/null; then
    echo "left out, as there is no Open MPI: $(grep -m1 mpirun "$first")"
    continue
  fi
  jobs=()
  for block in "$section".[ab]; do
    host=0
    [ "${block##*.}" = b ] && host=1
    timeout 60 "$on_hosts" run $host bash "$block" >"$block.out" 2>&1 &
    jobs+=("$!")
  done
  status=0
  for job in "${jobs[@]}"; do wait "$job" || status=$?; done
  grep -q 'Out of bounds values : 0 OK' "$section".a.out || status=1
  if [ "$status" -ne 0 ]; then
    failed=1
    echo "FAILED: $(basename "$section")"
    tail -n 40 "$section".*
  else
    echo "ok: $(tail -n 1 "$section.a")"
  fi
done
blocks=$(ls "$folder"/*.[ab] | wc -l)
[ "$blocks" -eq 5 ] || { echo "found $blocks blocks of commands in $document, expected 5"; failed=1; }
exit $failed
