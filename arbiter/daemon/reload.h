// SPDX-License-Identifier: Apache-2.0
// Reads the file of settings again while the arbiter runs: by SIGHUP, or by `sharedgpu reload`. A file with
// an error changes nothing. The log and the reply name the changed keys, and say which of them take effect
// only after a restart.
//
// Event-loop thread only.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/client.h"
#include "arbiter/daemon/coordination.h"
#include "arbiter/daemon/journal.h"
#include "arbiter/daemon/status_files.h"
#include "arbiter/daemon/system.h"
#include "config/settings.h"
#include "protocol/status.h"

namespace sharedgpu {

class Reload {
 public:
  // The daemon's side of a reload.
  struct Source {
    // Reads the file. Returns an empty string, or an error message that names file and line.
    std::function<std::string(Settings&)> read;
    // Switches to the log file that the settings name.
    std::function<Status(const Settings&)> open_log;
    std::function<void()> begins;  // called before a reload
    std::function<void()> ends;    // called after a reload
  };
  struct Parts {
    const System& system;
    Administration& administration;
    Journal& journal;
    Coordination& coordination;
  };
  explicit Reload(const Parts& parts) : its_(parts), files_(parts.system) {}

  // Sets the source. Before this call, every reload fails.
  void reads_from(Source source) { source_ = std::move(source); }

  // The outcome of a reload.
  struct Outcome {
    std::string error;  // empty: the file was read; else nothing has changed
    Difference keys;
    std::vector<std::string> overridden;  // the keys in keys.live whose values `sharedgpu set` overrides
    bool waits = false;                   // a GPU's smaller capacity takes effect only when its sessions have
                                          // ended
  };
  // Reads the file again. `who`: the user or signal that asks for the reload, for the log.
  Outcome reload(const std::string& who);
  // Handles a request. The sender must be an administrator.
  void answer(Client& client, const ReloadSettings& request);

 private:
  const Parts its_;
  Source source_;
  StatusFiles files_;
};

}  // namespace sharedgpu
