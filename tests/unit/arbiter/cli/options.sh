#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the subcommands and options that a program's --help lists.
#   options.sh PROGRAM
set -eu
program=$1

# names SECTION: prints the first word of each line of the section.
names() {
  sed -n "/^$1:/,/^$/s/^  \([^ ].*\)/\1/p" "$help" | sed 's/   *.*//'
}
show() {
  echo "${program##*/}${1:+ $1}"
  "$program" ${1:+"$1"} --help >"$help"
  { names Positionals; names Options; } | sed 's/^/  /'
  sed -n 's/^ *Any of these: /  NAME is one of: /p' "$help"
}

help=$(mktemp)
trap 'rm -f "$help"' EXIT
echo "# SPDX-License-Identifier: Apache-2.0"
show ""
for subcommand in $(names Subcommands); do show "$subcommand"; done
