// SPDX-License-Identifier: Apache-2.0
// Takes the place of top_screen.cpp in a build without ncurses.
#include "arbiter/cli/top_screen.h"

namespace sharedgpu::cli {

std::string run_screen(Top& /*top*/, Nanoseconds /*interval*/, const std::function<void()>& /*read*/) {
  return "this sharedgpu was built without ncurses; see sharedgpu top --once";
}

}  // namespace sharedgpu::cli
