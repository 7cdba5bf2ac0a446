#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the declarations in slurm_shared/abi/ compile for the releases for which they are valid, and for no other
# release.
#
#   check_release.sh COMPILER SOURCES SLURM_INCLUDE
set -euo pipefail
compiler=$1 sources=$2 slurm=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/slurm"
cp "$slurm"/slurm/*.h "$dir/slurm/"

# compiles MAJOR MINOR MICRO [OPTION...]
compiles() {
  sed "s/^#define SLURM_VERSION_NUMBER .*/#define SLURM_VERSION_NUMBER $((($1 << 16) + ($2 << 8) + $3))/" \
    "$slurm/slurm/slurm_version.h" >"$dir/slurm/slurm_version.h"
  local part
  for part in gres accounting controller; do
    "$compiler" -std=c++20 -fsyntax-only "${@:4}" -isystem "$dir" -I"$sources" -x c++ - \
      <<<"#include \"slurm_shared/abi/$part.h\"" 2>"$dir/errors" || return
  done
}

status=0
expect() { # yes|no MAJOR MINOR MICRO [OPTION]
  local answer=no
  if compiles "${@:2}"; then answer=yes; fi
  [[ $answer == "$1" ]] || { echo "compiles for $2.$3.$4 ${5-}: $answer, not $1"; cat "$dir/errors"; status=1; }
}

expect yes 22 5 8
expect yes 24 11 5
expect yes 26 5 99
for release in "21 8 8" "26 11 0"; do
  # shellcheck disable=SC2086 # three numbers
  expect no $release
  grep -q "SHAREDGPU_UNKNOWN_SLURM=ON" "$dir/errors" || { echo "$release: not told what to do"; status=1; }
  # shellcheck disable=SC2086
  expect yes $release -DSHAREDGPU_UNKNOWN_SLURM
done
exit "$status"
