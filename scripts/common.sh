# What the scripts of this folder share. Sourced, not run: it sets `root` and `jobs`, and defines what follows.
# shellcheck shell=bash

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
jobs=${NIMBLE_JOBS:-$(nproc)}
self=$(basename -- "$0")

# Prints the comment block at the head of the running script: it is the script's help.
print_help() { sed -n '2,/^$/{/^#/!q; s/^# \{0,1\}//; p}' "$0"; }

say() { printf '%s: %s\n' "$self" "$*"; }

fail() {
  printf '%s: %s\n' "$self" "$*" >&2
  exit 1
}

# For an option that needs a value: `--preset) need_value "$@" && preset=$2 && shift ;;`
need_value() { [ $# -ge 2 ] || fail "$1 needs a value; see scripts/$self --help"; }

# Runs a command whose output matters only if it fails.
quietly() {
  local log=$1
  shift
  mkdir -p "$(dirname -- "$log")"
  if ! "$@" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    fail "this failed: $* (whole output: $log)"
  fi
}

# Builds what `cmake --build` is told to. A terminal sees Ninja's progress; a log sees what the compiler has to say.
build() {
  if [ -t 1 ]; then
    cmake --build "$@" -j "$jobs"
  else
    cmake --build "$@" -j "$jobs" | { grep -vE '^\[[0-9]+/[0-9]+\]|^ninja: no work to do' || true; }
  fi
}

# What every script configures with. The header wheels win over a toolkit only where scripts/setup was told so.
cmake_arguments=()
if [ "${NIMBLE_IGNORE_TOOLKIT:-0}" = 1 ]; then
  cmake_arguments+=("-DNIMBLE_CUDA_INCLUDE_DIR=$root/build/cuda-headers/include")
fi

# CMake takes these as the default of CMAKE_<LANG>_COMPILER_LAUNCHER.
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-ccache}
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
  # What one clone has compiled serves the others.
  export CCACHE_BASEDIR=${CCACHE_BASEDIR-$root} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR-1}
fi
