#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that a program which uses musl (as in an Alpine container) runs with libsharedgpu.so preloaded, without a
# warning.
#   check_musl.sh LIBRARY PROGRAM.c
set -eu
if ! command -v musl-gcc >/dev/null; then
  echo "skipped: musl-tools is not installed"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
musl-gcc -Wall -Wextra -Werror -o "$folder/program" "$2"
output=$(LD_PRELOAD=$1 "$folder/program" 2>&1) || { echo "exit status $?: $output" >&2; exit 1; }
if [ "$output" != works ]; then
  echo "prints: $output" >&2
  exit 1
fi
