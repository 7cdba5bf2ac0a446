#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that loading libsharedgpu.so runs no code, so a program that never uses CUDA is not changed.
#   check_constructors.sh LIBRARY
set -eu
library=$1

ours=$(nm -C "$library" | grep -E '_GLOBAL__sub_I_|_GLOBAL__sub_D_' || true)
if [ -n "$ours" ]; then
  printf '%s runs code when it is loaded or unloaded:\n%s\n' "$library" "$ours" >&2
  echo "Where these are libstdc++'s, interposer/glibc/no_throw.cpp lacks a function that something new needs." >&2
  exit 1
fi
# The one permitted initialiser is the compiler's frame_dummy, which does nothing.
slots=$(readelf -SW "$library" | sed -n 's/.*\.init_array *INIT_ARRAY *[0-9a-f]* *[0-9a-f]* *\([0-9a-f]*\) .*/\1/p')
if [ $((0x$slots / 8)) -gt 1 ]; then
  echo "$library has $((0x$slots / 8)) initialisers; 1 is known" >&2
  exit 1
fi
echo "no constructors"
