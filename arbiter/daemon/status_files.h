// SPDX-License-Identifier: Apache-2.0
// Files with the text of the status, for peers to read: a bounded number of them, however many peers keep
// theirs open. When one too many is made, the oldest is emptied: its memory is free whoever still holds the
// file, but for pages that a reader has moved into pipes of its own. A peer can neither change nor resize a
// file.
//
// One thread, that of the event loop.
#pragma once

#include <deque>
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
    UniqueFd own;      // with which it is emptied
    UniqueFd to_read;  // for peers
    std::size_t size = 0;
  };
  // Makes a file that holds `text`.
  Status add(const std::string& text);
  // The one that was made last; null: there is none. Valid until the next one is made.
  const File* newest() const { return files_.empty() ? nullptr : &files_.back(); }

 private:
  const System& system_;
  std::deque<File> files_;  // the oldest one first
};

}  // namespace sharedgpu
