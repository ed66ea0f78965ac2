#!/usr/bin/env bash
# Runs a program of four ranks on two hosts, two ranks on each, over TCP.
#   on_hosts make 2 on_two_hosts.sh ON_HOSTS AXCCL_PROGRAM SANITIZER
# Outputs must be the reference's, a file of a host must do for the next run, and a rank that dies must end the other host.
set -uo pipefail
on_hosts=$1 program=$2 sanitizer=$3
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
(umask 077; head -c 32 /dev/urandom | base64 >"$folder/secret")
export AXCCL_SECRET_FILE=$folder/secret AXCCL_CACHE_DIR=$folder/cache AXCCL_DEVICE=host
cat >"$folder/step.axp" <<'END'
axccl-program 1
ranks 4
part main on [0,1,2,3]
  argument %0 f32[64,8]
  %1 f32[64,8] = all_reduce %0 fold=add groups=[[0,2],[1,3]] channel=1
  %2 f32[16,8] = reduce_scatter %1 fold=add dim=0 groups=[[0,1,2,3]] channel=2
  %4 f32[16,8] = collective_permute %2 pairs=[[0,1],[1,2],[2,3],[3,0]] channel=4
  return %1 %4
END

# both NAME ARGUMENTS...: a process on each host, whose exit statuses are in $exits.
both() {
  local name=$1 jobs=()
  shift
  for host in 0 1; do
    timeout 60 "$on_hosts" run $host env RANK=$host WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 \
      "$program" "$@" >"$folder/$name.$host" 2>&1 &
    jobs+=("$!")
  done
  exits=
  for job in "${jobs[@]}"; do wait "$job"; exits+=$?; done
}
failed=0
expect() {  # NAME EXITS TEXT [HOST], which is 1 unless given
  if [ "$exits" != "$2" ] || ! grep -q -- "$3" "$folder/$1.${4-1}"; then
    echo "FAILED: $1: exit statuses $exits instead of $2, or no '$3'"
    tail -n 20 "$folder/$1".*
    failed=1
  fi
}
both reference run "$folder/step.axp" --against reference --outputs "$folder/out.{rank}.json"
expect reference 00 'ranks 2 to 3: equal to reference'
both again run "$folder/step.axp" --against "$folder/out.{rank}.json"
expect again 00 "ranks 2 to 3: equal to $folder/out.2.json"
both differs run "$folder/step.axp" --seed 2 --against "$folder/out.{rank}.json"
expect differs 11 'differs from .*out.0.json in rank 0, output 0: element \[0,0\]' 0
expect differs 11 'the process of rank 0 says where'
[ -z "$sanitizer" ] || exit $failed  # it ends processes that have no memory
# Rank 0 has no memory for this.
sed 's/^  return.*/  %5 u32[] = partition_id\n  %6 u32[] = constant value=0\n  %7 i1[] = compare %5 %6 direction=EQ\
  %8 f32[64,8] = if %7\n  then\n    %9 f32[64,8,9007199254740] = broadcast_in_dim %1 dims=[0,1]\
    %10 f32[64,8,1] = slice %9 starts=[0,0,0] limits=[64,8,1] strides=[1,1,1]\n    %11 f32[64,8] = reshape %10\
    return %11\n  else\n    return %1\n  %12 f32[64,8] = all_reduce %8 fold=add groups=[[0,1,2,3]] channel=5\n  return %12/' \
  "$folder/step.axp" >"$folder/huge.axp"
both dies run "$folder/huge.axp"
expect dies 11 'axccl-program: rank [23]'
grep -q 'rank 0 in %9 broadcast_in_dim: out of memory' "$folder/dies.0" || { cat "$folder"/dies.*; failed=1; }
exit $failed
