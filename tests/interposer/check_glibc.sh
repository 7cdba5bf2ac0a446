#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that libsharedgpu.so needs no library but glibc, and no version of glibc after 2.17: it must load in users'
# containers.
#   check_glibc.sh LIBRARY
set -eu
library=$1
newest=2.17

newer=$(objdump -T "$library" | grep '\*UND\*' | sed -n 's/.*(\(GLIBC_[0-9.]*\)) *\(.*\)/\1 \2/p' |
  while read -r version name; do
    oldest_first=$(printf '%s\n%s\n' "$newest" "${version#GLIBC_}" | sort -V | tail -1)
    [ "$oldest_first" = "$newest" ] || echo "  $name needs $version"
  done)
if [ -n "$newer" ]; then
  printf '%s needs a glibc after %s:\n%s\n' "$library" "$newest" "$newer" >&2
  exit 1
fi

foreign=$(objdump -p "$library" | awk '$1 == "NEEDED" {print $2}' |
  grep -vE '^(libc\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux-.*)$' || true)
if [ -n "$foreign" ]; then
  echo "$library needs libraries that a program may lack: $foreign" >&2
  exit 1
fi
echo "runs with glibc $newest and later"
