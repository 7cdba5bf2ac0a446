#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The gate must reach the calling thread's thread_local counter with one instruction. So all thread_local variables of
# the library must have the initial-exec model. Relocations of this model are TPOFF.
#   check_tls.sh LIBRARY
set -eu
library=$1

dynamic=$(readelf -rW "$library" | grep -E 'DTPMOD|TLSDESC' | wc -l)
static=$(readelf -rW "$library" | grep -E 'TPOFF' | wc -l)
if [ "$static" -eq 0 ] || [ "$dynamic" -gt 0 ]; then
  echo "$library: $static initial-exec and $dynamic dynamic thread_local relocations" >&2
  exit 1
fi
readelf -dW "$library" | grep -q STATIC_TLS || { echo "$library: no STATIC_TLS flag" >&2; exit 1; }
echo "thread_locals are initial-exec"
