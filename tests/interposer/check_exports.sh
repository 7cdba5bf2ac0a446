#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that libsharedgpu.so exports exactly dlsym and all wrappers of the tables.
#   check_exports.sh LIBRARY TABLE...
set -eu
library=$1
shift

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{ sed -n 's/^\(SUBMIT\|HOOK\)(\([A-Za-z0-9_]*\),.*/\2/p' "$@"; echo dlsym; } | sort >"$work/expected"
nm -D --defined-only --without-symbol-versions "$library" | awk '$2 != "A" {print $3}' | sort -u >"$work/exported"
if ! diff "$work/expected" "$work/exported"; then
  echo "$library: < should be exported and is not, > should not be and is" >&2
  exit 1
fi
echo "$(wc -l <"$work/exported") exports, all from the table"
