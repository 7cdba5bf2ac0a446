#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that LIST names all global variables of the interposer, and no others. The list gives the reason for each
# variable.
#   check_globals.sh LIST FILE...   FILE: an object file or an archive of the interposer
set -eu
list=$1
shift

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for file in "$@"; do nm -A -C -f sysv --defined-only "$file"; done |
  awk -F'|' '$7 ~ /^ *\.t?(bss|data)/ && $7 !~ /rel\.ro/ && $1 !~ /guard variable for/ { print $1 }' |
  # Prints the source file and the name of each variable. Removes arguments, the common namespace and anonymous
  # namespaces from the name.
  sed -E 's/ +$//; s/\(anonymous namespace\):://g; s/\([^()]*\)//g; s#^[^ ]*[/:]([a-z_]+)\.cpp\.o:(sharedgpu::)?#\1 #' |
  sort -u >"$folder/found"
sed -nE 's/^\| `([a-z_]+)` \| `([A-Za-z_:]+)` \| .+ \|$/\1 \2/p' "$list" | sort -u >"$folder/listed"
[ -s "$folder/found" ] || { echo "no variables found" >&2; exit 1; }
if ! diff "$folder/found" "$folder/listed" >"$folder/diff"; then
  echo "found (<), and listed in $list (>):" >&2
  cat "$folder/diff" >&2
  exit 1
fi
echo "$(wc -l <"$folder/found") variables, all listed"
