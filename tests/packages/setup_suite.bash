# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Makes the packages of the build, and a second release of them for upgrades. SHAREDGPU_BUILD names the build folder
# (default: build). SHAREDGPU_PACKAGES_ROOT names the root folder with which each test's host begins (default: /, which
# has Slurm); see clean-root.

setup_suite() {
  local sources build
  sources=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
  build=$(readlink -f "${SHAREDGPU_BUILD:-$sources/build}")
  PACKAGES=$(mktemp -d /tmp/sgpu-packages.XXXXXX)
  export PACKAGES SOURCES=$sources BUILD=$build
  chmod 755 "$PACKAGES"
  mkdir -p "$PACKAGES"/{1,2,driver}
  "$sources/scripts/package" --build "$build" --no-build deb >"$PACKAGES/made"
  xargs -a "$PACKAGES/made" mv -t "$PACKAGES/1"
  "$sources/scripts/package" --build "$build" --no-build --release 2 deb >"$PACKAGES/made"
  xargs -a "$PACKAGES/made" mv -t "$PACKAGES/2"
  cp -P "$build"/tests/simgpu/libcuda.so* "$build"/tests/simgpu/nvml/libnvidia-ml.so* "$PACKAGES/driver"
}

teardown_suite() { rm -rf "$PACKAGES"; }
