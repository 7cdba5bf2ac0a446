#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that the PTX of the library's kernel compiles for every architecture of the list below that this
# ptxas knows.
#   check_ptx.sh PROGRAM      PROGRAM prints the PTX
# Exit status 77: there is no ptxas.
set -eu
ptxas=$(command -v ptxas || ls /usr/local/cuda/bin/ptxas 2>/dev/null) || exit 77
file=$(mktemp)
trap 'rm -f "$file"' EXIT
"$1" >"$file"
known=0
for gpu in 50 52 60 61 70 75 80 86 89 90 100 103 120; do
  if said=$("$ptxas" -arch=sm_$gpu "$file" -o /dev/null 2>&1); then
    known=$((known + 1))
  elif ! echo "$said" | grep -q "not defined for option 'gpu-name'"; then
    printf 'sm_%s: %s\n' "$gpu" "$said" >&2
    exit 1
  fi
done
[ "$known" -gt 0 ]
echo "assembled for $known kinds of GPU"
