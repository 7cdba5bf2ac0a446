// SPDX-License-Identifier: Apache-2.0
// The sessions that lend device memory to others of their tenant, by the numbers under which they do. Nothing
// crosses from one tenant to another.
//
// One thread at a time.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "protocol/messages.h"

namespace sharedgpu {

class Loans {
 public:
  // From here on the session lends under this number, and under no other.
  void announce(SessionId session, TenantId tenant, std::uint64_t lender);
  // The tenant's session that lends under this number; nullopt: there is none.
  std::optional<SessionId> find(TenantId tenant, std::uint64_t lender) const;
  // The session has ended.
  void forget(SessionId session);

 private:
  using Key = std::pair<TenantId, std::uint64_t>;

  std::map<Key, SessionId> lenders_;
  std::map<SessionId, Key> keys_;
};

}  // namespace sharedgpu
