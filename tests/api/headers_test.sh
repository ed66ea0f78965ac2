#!/bin/sh
# The public headers compile without a warning in every C and C++ that these compilers know, and nccl.h brings
# cuda_runtime.h along exactly where it should. Arguments: folder of the headers, folder of this file, a folder to write
# to, then the compilers of C and C++.
set -u
include=$(cd "$1" && pwd) sources=$2 work=$3 cc=$4 cxx=$5
failed=0
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/cuda"
# Stands for CUDA's own, so that the test is the same on every machine. Its types are those of the real one.
cat >"$work/cuda/cuda_runtime.h" <<'END'
#ifndef __DRIVER_TYPES_H__
#define __DRIVER_TYPES_H__
struct CUstream_st;
typedef struct CUstream_st* cudaStream_t;
typedef enum { cudaSuccess = 0 } cudaError_t;
#endif
END
printf '#include <cuda_runtime.h>\n#include "nccl.h"\n%s\n' 'cudaStream_t axccl_test_stream(void);' >"$work/cuda_first.c"

# compile SOURCE COMMAND...: fails with the command and its messages.
compile() {
  source=$1
  shift
  if ! "$@" -I"$include" -fsyntax-only "$source" >"$work/messages" 2>&1; then
    echo "$* $source:"
    cat "$work/messages"
    failed=1
  fi
}
# every_way LANGUAGE STANDARD BRINGS COMPILER OPTION...: without CUDA's headers, with them, and with them before nccl.h.
every_way() {
  language=$1 standard=$2 brings=$3
  shift 3
  set -- "$@" -x "$language" -std="$standard" -pedantic-errors -Werror
  user=$sources/any_language.c
  compile "$user" "$@" -DAXCCL_NO_CUDA_HEADERS -isystem "$work/cuda"
  if [ "$brings" = yes ]; then set -- "$@" -DEXPECT_CUDA; fi
  compile "$user" "$@" -isystem "$work/cuda"
  compile "$work/cuda_first.c" "$@" -isystem "$work/cuda"
}
# What -Weverything adds about padding is no fault: the layouts are NCCL's, and may not change.
all_of_clang="-Weverything -Wno-padded -Wno-unknown-warning-option"
for standard in c89 gnu89 c99 c11 c17; do
  case $standard in c11 | c17) brings=yes ;; *) brings=no ;; esac
  every_way c $standard $brings "$cc" -Wall -Wextra
  if command -v clang >/dev/null; then every_way c $standard $brings clang $all_of_clang; fi
done
for standard in c++98 c++11 c++14 c++17 c++20; do
  case $standard in c++98) brings=no ;; *) brings=yes ;; esac
  every_way c++ $standard $brings "$cxx" -Wall -Wextra -Wold-style-cast
  if command -v clang++ >/dev/null; then every_way c++ $standard $brings clang++ $all_of_clang; fi
done
# Each alone, with nothing before it.
for header in "$include"/nccl.h "$include"/axccl/*.h; do
  printf '#include "%s"\nextern int axccl_test_not_empty;\n' "$header" >"$work/alone.c"
  compile "$work/alone.c" "$cc" -std=c89 -pedantic-errors -Wall -Wextra -Werror
done
command -v clang >/dev/null || echo "left out: clang, which is not installed"
exit $failed
