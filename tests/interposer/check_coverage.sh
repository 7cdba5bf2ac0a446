#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that scripts/driver-coverage fails for each of the mistakes below.
#   check_coverage.sh SCRIPT TABLE PAGE CUDA_INCLUDE CC
set -eu
script=$1 table=$2 page=$3 include=$4 cc=$5

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fails WORD COMMAND...: the command must fail and print WORD.
fails() {
  word=$1
  shift
  if "$@" >"$work/said" 2>&1; then
    echo "did not fail: $*" >&2
    exit 1
  fi
  grep -q "$word" "$work/said" || { echo "failed otherwise: $*" >&2; cat "$work/said" >&2; exit 1; }
}

# A function is missing from the table: the newest version of a function, an old version, a per-thread
# variant, a function of class none.
for name in cuMemcpyHtoD_v2 cuMemcpyHtoD cuLaunchKernel_ptsz cuDriverGetVersion; do
  grep -v "($name, " "$table" >"$work/table.def"
  fails "lacks: $name" "$script" header "$include" "$cc" --table "$work/table.def"
  fails "out of date" "$script" check --table "$work/table.def" --page "$page"
done

# cuda.h has a new function, or cannot be read.
mkdir "$work/new" "$work/empty"
cp "$include"/cuda.h "$work/new"
echo 'CUresult CUDAAPI cuMemTeleport(CUdeviceptr from, CUdeviceptr to);' >>"$work/new/cuda.h"
fails "lacks: cuMemTeleport" "$script" header "$work/new" "$cc" --table "$table"
: >"$work/empty/cuda.h"
fails "declares 0 functions" "$script" header "$work/empty" "$cc" --table "$table"

# The table has a duplicate line, a line of an unknown class, a line whose class differs from that of its
# variant, or an invalid line.
{ cat "$table"; echo 'PLAIN(cuInit, none)'; } >"$work/table.def"
fails "cuInit occurs 2 times" "$script" check --table "$work/table.def" --page "$page"
{ cat "$table"; echo 'PLAIN(cuNew, odd)'; } >"$work/table.def"
fails "class odd" "$script" check --table "$work/table.def" --page "$page"
{ cat "$table"; echo 'PLAIN(cuInit_ptsz, none)'; } >"$work/table.def"
fails "different classes" "$script" check --table "$work/table.def" --page "$page"
{ cat "$table"; echo 'SUBMITS(cuNew, 2)'; } >"$work/table.def"
fails "cannot be read" "$script" check --table "$work/table.def" --page "$page"

# The page was edited, or is missing.
{ cat "$page"; echo more; } >"$work/page.md"
fails "out of date" "$script" check --table "$table" --page "$work/page.md"
fails "out of date" "$script" check --table "$table" --page "$work/none.md"
echo "every mistake is found"
