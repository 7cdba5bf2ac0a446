// SPDX-License-Identifier: Apache-2.0
// The live sessions, each with its connection, its lease page and the pidfd of its process.
//
// Event-loop thread only.
#pragma once

#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <set>

#include "arbiter/daemon/client.h"
#include "protocol/lease_page.h"

namespace sharedgpu {

class SessionTable {
 public:
  struct Entry {
    std::shared_ptr<Client> client;
    LeasePageWriter page;
    asio::posix::stream_descriptor death;  // the process's pidfd
    GpuUuid gpu = {};                      // the session's GPU; zero: not attached yet
    Traffic moved = {};                    // bytes moved, as of the session's last report
    Exchanges exchanges = {};              // exchanges, as of the session's last report
    bool look_is_due = false;              // a poll of the process's state is queued
    // The session claims to reconnect, but no record confirms the claim. Cleared by the session's first
    // Usage, or when the session replaces a closed session that was attached to the same GPU.
    bool is_unproven = false;
    // Set while the connection is closed and the session may reconnect.
    std::unique_ptr<asio::steady_timer> reconnect_timer = {};

    // Returns true if the connection is open and the peer has read all messages sent to it.
    bool reads() const { return reconnect_timer == nullptr && !client->connection().has_unread(); }
  };

  Entry& add(SessionId id, Entry entry) {
    of_processes_[entry.client->peer().process()].insert(id);
    return entries_.insert_or_assign(id, std::move(entry)).first->second;
  }
  // Returns null if there is no such session. The pointer is valid until the session is removed.
  Entry* find(SessionId id) {
    const auto entry = entries_.find(id);
    return entry == entries_.end() ? nullptr : &entry->second;
  }
  const Entry* find(SessionId id) const { return const_cast<SessionTable*>(this)->find(id); }
  void remove(SessionId id) {
    const auto entry = entries_.find(id);
    if (entry == entries_.end()) return;
    const auto its = of_processes_.find(entry->second.client->peer().process());
    its->second.erase(id);
    if (its->second.empty()) of_processes_.erase(its);
    entries_.erase(entry);
  }

  const std::map<SessionId, Entry>& all() const { return entries_; }
  // The sessions of one process, one for each GPU that it uses. Valid until the process's next session begins
  // or ends.
  const std::set<SessionId>& of(const ProcessName& process) const {
    static const std::set<SessionId> kNone;
    const auto its = of_processes_.find(process);
    return its == of_processes_.end() ? kNone : its->second;
  }

 private:
  std::map<SessionId, Entry> entries_;
  std::map<ProcessName, std::set<SessionId>> of_processes_;
};

}  // namespace sharedgpu
