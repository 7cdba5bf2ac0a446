// SPDX-License-Identifier: Apache-2.0
// Files with a text for peers to read: the status, or the outcome of a reload. Peers may keep files open, so
// the number of files with contents is bounded. If there are too many, the oldest file is emptied. Emptying a
// file frees its memory even if a peer has the file open. Only pages that a reader has moved into its own
// pipes are not freed. A peer can neither change nor resize a file.
//
// Event-loop thread only.
#pragma once

#include <sys/types.h>

#include <deque>
#include <optional>
#include <string>

#include "arbiter/daemon/system.h"
#include "protocol/channel.h"
#include "protocol/status.h"

namespace sharedgpu {

class StatusFiles {
 public:
  static constexpr std::size_t kMost = 8;

  explicit StatusFiles(const System& system) : system_(system) {}

  struct File {
    std::optional<uid_t> viewer;  // the user for whom the text was made; nullopt: for users that see all
                                  // tenants
    UniqueFd own;                 // for emptying the file
    UniqueFd to_read;             // for peers
    std::size_t size = 0;
  };
  // Creates a file that holds `text`.
  Status add(const std::string& text, std::optional<uid_t> viewer = {});
  // The newest file for the viewer; null if no file exists. Valid until the next add().
  const File* newest(std::optional<uid_t> viewer = {}) const;

 private:
  const System& system_;
  std::deque<File> files_;  // oldest first
};

}  // namespace sharedgpu
