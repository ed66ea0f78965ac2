#!/bin/bash
# The packages that cpack makes, from outside: lintian finds no error, dpkg installs them into a fresh Debian, and there
# programs run, users build, and gdb's files are where it looks. The source archive holds the source alone. Arguments: the
# build folder, the folder of this file, a folder to write to.
set -euo pipefail
build=$1 sources=$2 work=$3
suite=bookworm mirror=${AXCCL_TEST_DEBIAN:-}  # debootstrap has a default
for needed in debootstrap dpkg-shlibdeps; do
  command -v $needed >/dev/null || { echo "SKIPPED: no $needed"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "SKIPPED: chroot needs root"; exit 77; }
fail() { echo "$1" >&2; exit 1; }

rm -rf "$work"
mkdir -p "$work"
trap 'umount "$work/debian/proc" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
cpack --config "$build/CPackConfig.cmake" >cpack.log 2>&1 || { cat cpack.log; exit 1; }
if command -v lintian >/dev/null; then
  lintian --allow-root --fail-on error ./*.deb >lintian.log 2>&1 || { cat lintian.log; exit 1; }
else
  echo "left out: lintian, which is not installed"
fi

cpack --config "$build/CPackSourceConfig.cmake" >source.log 2>&1 || { cat source.log; exit 1; }
tar -tf axccl-*.tar.xz >contents
grep -qE '^axccl-[0-9.]+/CMakeLists.txt$' contents || fail "the source archive has no CMakeLists.txt"
if grep -E '/\.git/|/build/|\.o$' contents; then fail "these are in the source archive"; fi

# What the packages depend on, and what building a user takes.
debootstrap --variant=minbase --include=gcc,g++,libc6-dev,pkg-config,libsodium-dev,libzstd1 $suite debian $mirror \
  >debootstrap.log 2>&1 || { tail -5 debootstrap.log; echo "SKIPPED: debootstrap failed"; exit 77; }
mount --bind /proc debian/proc || echo "without /proc"
cp ./*.deb "$sources"/consumer/main.c "$sources"/consumer/main.cc "$sources"/soname_main.c "$sources"/count_gpus.c debian/root
inside() { chroot debian /usr/bin/env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C bash -euc "cd /root; $1"; }
inside 'dpkg -i ./*.deb' >dpkg.log 2>&1 || { cat dpkg.log; exit 1; }
inside 'axccl-info --version; axccl-plan verify --op all_reduce --algo ring --ranks 4; all_reduce_perf --version'
inside 'gcc main.c -o c $(pkg-config --cflags --libs axccl); ./c'
inside 'g++ main.cc -o cc $(pkg-config --cflags --libs axccl); ./cc'
inside 'gcc main.c -o static -Wl,-Bstatic $(pkg-config --cflags --libs axccl) -Wl,-Bdynamic \
  $(pkg-config --static --libs-only-l axccl | sed s/-laxccl//); ./static; ! ldd static | grep axccl'
inside 'g++ main.cc -o both -static-libstdc++ -static-libgcc $(pkg-config --cflags axccl) -Wl,-Bstatic -laxccl -Wl,-Bdynamic \
  $(pkg-config --static --libs-only-l axccl | sed "s/-laxccl//; s/-lstdc++//"); ./both; ! ldd both | grep -E "axccl|stdc"'
inside 'D=/usr/lib/axccl/dropin; gcc soname_main.c -o nccl -I$D/include -L$D -lnccl -ldl
  LD_LIBRARY_PATH=$D ./nccl ours /usr/lib/libaxccl.so.0'
inside 'gcc count_gpus.c -o gpus -ldl; test "$(softgpu run --devices 3 ./gpus)" = "3 GPUs"'
inside 'id=$(readelf -n /usr/lib/libaxccl.so.0 | sed -n "s/.*Build ID: //p")
  readelf -S /usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug | grep -q debug_info
  ! readelf -S /usr/lib/libaxccl.so.0 | grep debug_info'
inside 'dpkg -r axccl axccl-softgpu axccl-dbgsym libaxccl-dev libaxccl0 >/dev/null; ! ls -d /usr/lib/axccl /usr/include/axccl'
echo "all right"
