#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the exit statuses of a program for wrong command lines and settings.
#   wrong_usage.sh PROGRAM [ARGUMENT...]     with these arguments, the program's command line is complete
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo NoSuchKey=1 >"$folder/wrong.conf"

# of SITUATION COMMAND...
of() {
  situation=$1 status=0
  shift
  timeout 30 "$@" </dev/null >/dev/null 2>&1 || status=$?
  printf '%3d  %s\n' "$status" "$situation"
}

echo "# SPDX-License-Identifier: Apache-2.0"
of --help "$1" --help
of --version "$1" --version
of "no such option" "$@" --none
of "an argument" "$@" none
of "--config: no value" "$@" --config
of "--config: no such file" "$@" --config "$folder/none"
of "--config: an unknown key" "$@" --config "$folder/wrong.conf"
