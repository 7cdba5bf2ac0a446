// SPDX-License-Identifier: Apache-2.0
// A child process that uses the driver's libraries for the daemon.
//
// So the daemon itself has no context, library or device file of the driver. If the driver crashes or hangs,
// only the child is affected.
#pragma once

#include <sys/types.h>

#include <functional>

#include "arbiter/daemon/system.h"
#include "protocol/channel.h"

namespace sharedgpu {

// Forks a child that calls `work` and then exits. `work` gets the number of the child's copy of the
// descriptor `end`. Of the daemon's descriptors, the child keeps only `end` and the standard streams. Returns
// the child's pid, or a negative number with errno. Call in the arbiter's main thread. The ledger's thread
// may run meanwhile, since `work` uses no lock of that thread.
pid_t start_driver_child(UniqueFd end, const std::function<void(int end)>& work);

// One of the driver's libraries, loaded in the child.
class DriverLibrary {
 public:
  DriverLibrary(const System& system, const char* name)
      : system_(system), handle_(system.open_library(name)) {}
  explicit operator bool() const { return handle_ != nullptr; }
  template <class Function>
  bool load(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(system_.symbol(handle_, name));
    return function != nullptr;
  }

 private:
  const System& system_;
  void* const handle_;
};

}  // namespace sharedgpu
