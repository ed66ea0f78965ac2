# Sourced by demo and test: checks that the packages of the build are installed. Prints which are missing, and
# installs them with apt-get if there is one.

# The folder of tc, which is not on the path of Debian's users.
PATH=$PATH:/usr/sbin:/sbin

# have_header HEADER: whether the C++ compiler finds it.
have_header() { echo "#include <$1>" | c++ -E -x c++ - >/dev/null 2>&1; }
have_command() { command -v "$1" >/dev/null 2>&1; }
# A compiler cache, and a folder that it may write to, because not every user has a home.
have_cache() {
  local folder
  folder=$(ccache -k cache_dir) && mkdir -p "$folder" && [ -w "$folder" ]
} 2>/dev/null
have_libfuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++ -fsanitize=fuzzer -x c++ - -o /dev/null 2>/dev/null
}

# Debian package, and the check whether it is installed already (in any way).
needed_packages() {
  cat <<'LIST'
build-essential have_command c++
cmake have_command cmake
ninja-build have_command ninja
libgtest-dev have_header gtest/gtest.h
libbenchmark-dev have_header benchmark/benchmark.h
libsodium-dev have_header sodium.h
libxxhash-dev have_header xxhash.h
libzstd-dev have_header zstd.h
libucx-dev have_header ucp/api/ucp.h
libhwloc-dev have_header hwloc.h
libexpat1-dev have_header expat.h
libgcrypt20-dev have_header gcrypt.h
nlohmann-json3-dev have_header nlohmann/json.hpp
iproute2 have_command tc
pkg-config have_command pkg-config
python3 have_command python3
ccache have_command ccache
LIST
}

# The package with which tools/test checks the formatting.
formatting_packages() { echo "clang-format have_command clang-format"; }

# The packages with which tools/test also builds and checks the Python package.
have_python_headers() { "${AXCCL_PYTHON:-python3}" -c '
import os, sysconfig
raise SystemExit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'; } 2>/dev/null
have_venv() { "${AXCCL_PYTHON:-python3}" -c 'import venv, ensurepip'; } 2>/dev/null
python_packages() {
  cat <<'LIST'
python3-dev have_python_headers
python3-venv have_venv
LIST
}

# python_environment FOLDER [PACKAGE...]: makes a virtual environment with what the Python package is built and checked with
# (tools/python/requirements.txt), and with other packages of PyPI. Done before: returns at once.
python_environment() {
  local folder=$1 wanted
  shift
  wanted=$("${AXCCL_PYTHON:-python3}" -VV; cat tools/python/requirements.txt; printf '%s\n' "$@")
  [ -e "$folder/done" ] && [ "$(cat "$folder/done")" = "$wanted" ] && return 0
  (install_packages python_packages) || return 1
  rm -rf "$folder"
  "${AXCCL_PYTHON:-python3}" -m venv "$folder" &&
    "$folder/bin/pip" install -q --disable-pip-version-check -r tools/python/requirements.txt "$@" || {
    echo "The packages of tools/python/requirements.txt cannot be installed from PyPI." >&2
    return 1
  }
  echo "$wanted" >"$folder/done"
}

# The packages that tools/test also needs, to fuzz.
fuzzing_packages() {
  cat <<'LIST'
clang have_libfuzzer
libclang-rt-dev have_libfuzzer
LIST
}

# missing_packages LIST, a function that prints it
missing_packages() {
  local package probe
  while read -r package probe; do
    $probe || echo "$package"
  done < <("$1")
}

# install_packages [LIST]
install_packages() {
  local list=${1:-needed_packages} missing as_root=""
  missing=$(missing_packages "$list" | tr '\n' ' ')
  [ -z "$missing" ] && return 0
  echo "Missing: $missing"
  if ! have_command apt-get; then
    echo "There is no apt-get here. Please install the equivalents of these Debian packages, then run this again." >&2
    exit 1
  fi
  if [ "$(id -u)" != 0 ]; then
    if ! have_command sudo; then
      echo "Installing needs root and there is no sudo. Please run: apt-get install $missing" >&2
      exit 1
    fi
    as_root=sudo
  fi
  echo "Installing them with apt-get."
  # A machine fresh from its image has no package lists yet.
  apt_install() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; }
  apt_install || { $as_root apt-get update && apt_install; }
  missing=$(missing_packages "$list" | tr '\n' ' ')
  if [ -n "$missing" ]; then
    echo "Still missing after the installation: $missing" >&2
    exit 1
  fi
}

# The options of CMake by which it uses ccache, if possible. Paths inside the checkout are ignored, so that another clone
# finds what this one has compiled. What is not in the cache is not preprocessed for it besides: the compiler writes which
# files it has read.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
launcher_options() {
  # ccache requires this sloppiness for precompiled headers; nothing here uses the time of compilation.
  have_cache && echo "-DCMAKE_C_COMPILER_LAUNCHER=ccache" \
    "-DCMAKE_CXX_COMPILER_LAUNCHER=env;CCACHE_SLOPPINESS=pch_defines,time_macros;ccache"
}

# configure FOLDER [OPTION...]: makes a build folder.
configure() {
  local folder=$1
  shift
  cmake -G Ninja -S . -B "$folder" $(launcher_options) "$@" >"$folder.configure.log" 2>&1 || {
    cat "$folder.configure.log" >&2
    echo "Configuring $folder failed; the text above says why." >&2
    return 1
  }
}
