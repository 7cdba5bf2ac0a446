#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the names of the environment variables SHAREDGPU_* that the product reads or sets.
#   environment.sh SOURCES
set -eu
cd "$1"
product="accounting arbiter config gres include interposer protocol spank"

echo "# SPDX-License-Identifier: Apache-2.0"
{
  # shellcheck disable=SC2086
  grep -rhoE '"[^"]*"' --include='*.h' --include='*.cpp' --include='*.c' $product
  # Scripts name the variables without quotes. @...@ is replaced by CMake.
  grep -rhE 'SHAREDGPU_' --exclude=CMakeLists.txt etc python | sed 's/@[A-Z_]*@//g'
} | grep -oE 'SHAREDGPU_[A-Z_]*[A-Z]' | LC_ALL=C sort -u
