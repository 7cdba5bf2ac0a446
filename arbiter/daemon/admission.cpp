// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/admission.h"

namespace sharedgpu {

Admission::Admission(std::size_t places) : most_strangers_(places / 4), most_(places - places / 8) {}

bool Admission::may_enter(uid_t user, Rank rank) const {
  if (rank == Rank::root) return true;
  const auto known = counts_->users.find(user);
  if (known != counts_->users.end() && known->second >= kMostPerUser) return false;
  return counts_->all < most_ && (rank == Rank::member || counts_->strangers < most_strangers_);
}

std::shared_ptr<void> Admission::enter(uid_t user, Rank rank) {
  if (!may_enter(user, rank)) return {};
  if (rank == Rank::root) return std::make_shared<char>();
  const std::size_t strangers = rank == Rank::stranger ? 1 : 0;
  counts_->strangers += strangers;
  ++counts_->all;
  ++counts_->users[user];
  return std::shared_ptr<void>(counts_.get(), [user, strangers, counts = counts_](void* /*its*/) {
    counts->strangers -= strangers;
    --counts->all;
    if (--counts->users[user] == 0) counts->users.erase(user);
  });
}

}  // namespace sharedgpu
