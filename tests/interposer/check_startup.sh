#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the costs of loading the library into a program, counted and not timed: relocations, names to look up, bytes
# of thread-local storage, pages of data. Each bound is the count at the time of the measurements in
# docs/benchmarks.md, plus a margin.
#   check_startup.sh LIBRARY
set -eu
library=$1

# at_most WHAT VALUE BOUND
at_most() {
  if [ "$2" -gt "$3" ]; then
    echo "$library: $2 $1; at most $3 are known to start quickly" >&2
    exit 1
  fi
}
section() { readelf -SW "$library" | sed -n "s/.* $1  *[A-Z_]* *[0-9a-f]* *[0-9a-f]* *\([0-9a-f]*\) .*/\1/p"; }
relocations() { readelf -rW "$library" | grep -cE "$1" || true; }
pages() { echo $(((0x$(section "$1") + 4095) / 4096)); }

relative=$(relocations 'R_(X86_64|AARCH64)_RELATIVE')
names=$(relocations 'R_(X86_64|AARCH64)_(JUMP_SLOT?|GLOB_DAT|64|ABS64|TPOFF64|DTPMOD64|DTPOFF64)')
thread=$((0x$(section '\.tbss')))
written=$(($(pages '\.data\.rel\.ro') + $(pages '\.data') + $(pages '\.bss')))
at_most "relocations" "$relative" 2500
at_most "names to look up" "$names" 160
at_most "bytes of thread-local storage" "$thread" 128
at_most "pages of data" "$written" 24
echo "$relative relocations, $names names, $thread bytes a thread, $written pages of data"
