// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/loans.h"

namespace sharedgpu {

void Loans::announce(SessionId session, TenantId tenant, std::uint64_t lender) {
  forget(session);
  const Key key{tenant, lender};
  keys_[session] = key;
  lenders_[key] = session;
}

std::optional<SessionId> Loans::find(TenantId tenant, std::uint64_t lender) const {
  const auto found = lenders_.find({tenant, lender});
  return found == lenders_.end() ? std::nullopt : std::optional(found->second);
}

void Loans::forget(SessionId session) {
  const auto key = keys_.find(session);
  if (key == keys_.end()) return;
  // Another session may have registered under this number later.
  const auto lender = lenders_.find(key->second);
  if (lender != lenders_.end() && lender->second == session) lenders_.erase(lender);
  keys_.erase(key);
}

}  // namespace sharedgpu
