// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/viewers.h"

#include <unistd.h>

#include <algorithm>

#include "protocol/split.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::minutes kAskAgain{5};
constexpr std::chrono::seconds kAskAgainWithoutAnswer{10};

}  // namespace

bool hides_jobs(std::string_view private_data) {
  const auto words = split(private_data, ',');
  return std::any_of(words.begin(), words.end(),
                     [](std::string_view word) { return word == "jobs" || word == "all"; });
}

std::optional<uid_t> Viewers::limit_for(uid_t user) {
  if (user == geteuid() || administration_.sees_all_tenants(user)) return {};
  return jobs_are_private() ? std::optional(user) : std::nullopt;
}

bool Viewers::jobs_are_private() {
  const PrivateData setting = administration_.settings().private_data;
  if (setting != PrivateData::slurm) return setting == PrivateData::jobs;
  if (!serves_slurm()) return false;
  ask_slurm();
  return answer_.value_or(true);
}

bool Viewers::serves_slurm() const {
  const auto& all = tenants_.all();
  return administration_.settings().tenants == TenantKind::jobs ||
         std::any_of(all.begin(), all.end(), [](const auto& each) { return each.second.name.is_job(); });
}

void Viewers::ask_slurm() {
  if (system_.now() < ask_at_) return;
  ask_at_ = Nanoseconds::max();
  scontrol_.find_private_data([this](const std::string& text) {
    if (!text.empty()) answer_ = hides_jobs(text);
    ask_at_ = system_.now() + (text.empty() ? Nanoseconds(kAskAgainWithoutAnswer) : Nanoseconds(kAskAgain));
  });
}

}  // namespace sharedgpu
