// SPDX-License-Identifier: Apache-2.0
// The sessions that there are, each with its connection, its lease page and the pidfd of its process.
//
// One thread, that of the event loop.
#pragma once

#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>

#include "arbiter/daemon/client.h"
#include "protocol/lease_page.h"

namespace sharedgpu {

class SessionTable {
 public:
  struct Entry {
    std::shared_ptr<Client> client;
    LeasePageWriter page;
    asio::posix::stream_descriptor death;  // the process's pidfd
    GpuUuid gpu = {};                      // that it is for; zero: not attached yet
    Traffic moved = {};                    // as reported last
    // Set: the connection is closed, and the session may come back.
    std::unique_ptr<asio::steady_timer> reconnect_timer = {};

    // It has read all that was sent to it.
    bool reads() const { return reconnect_timer == nullptr && !client->connection().has_unread(); }
  };

  Entry& add(SessionId id, Entry entry) {
    return entries_.insert_or_assign(id, std::move(entry)).first->second;
  }
  // Null: there is none. Valid until it is removed.
  Entry* find(SessionId id) {
    const auto entry = entries_.find(id);
    return entry == entries_.end() ? nullptr : &entry->second;
  }
  const Entry* find(SessionId id) const { return const_cast<SessionTable*>(this)->find(id); }
  void remove(SessionId id) { entries_.erase(id); }

  const std::map<SessionId, Entry>& all() const { return entries_; }

 private:
  std::map<SessionId, Entry> entries_;
};

}  // namespace sharedgpu
