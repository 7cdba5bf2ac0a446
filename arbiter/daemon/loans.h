// SPDX-License-Identifier: Apache-2.0
// The sessions that export device memory to other sessions of their tenant, found by their exporter numbers.
// A session finds only exporters of its own tenant.
//
// Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "protocol/messages.h"

namespace sharedgpu {

class Loans {
 public:
  // Registers the session under the number `lender`, and drops an earlier number of the session.
  void announce(SessionId session, TenantId tenant, std::uint64_t lender);
  // The tenant's session with this number; nullopt if no session of the tenant has the number.
  std::optional<SessionId> find(TenantId tenant, std::uint64_t lender) const;
  // Forgets a session that has ended.
  void forget(SessionId session);

 private:
  using Key = std::pair<TenantId, std::uint64_t>;

  std::map<Key, SessionId> lenders_;
  std::map<SessionId, Key> keys_;
};

}  // namespace sharedgpu
