// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/device_claims.h"

#include <algorithm>
#include <functional>
#include <string>

#include "config/quantities.h"

namespace sharedgpu {
namespace {

constexpr std::size_t kContradictions = 10;
// The log and the status name a tenant only if it reports more memory than NVML shows by over an eighth of
// the GPU.
constexpr std::uint64_t kNamedPart = 8;

}  // namespace

Bytes Recurring::amount() const {
  std::array<Bytes, kContradictions> largest;
  std::partial_sort_copy(last_.begin(), last_.end(), largest.begin(), largest.end(), std::greater<>());
  return largest.back();
}

void DeviceClaims::look(const Snapshot& state) {
  std::map<OnGpu, Excess> found;
  for (const Snapshot::Session& session : state.sessions) {
    if (!session.gpu) continue;
    Excess& its = found[{session.tenant, *session.gpu}];
    if (session.frozen || session.backend == Backend::managed) continue;
    its.unseen += session.evidence.absent();
    its.disproved += session.disproved;
  }
  std::erase_if(rows_, [&](const auto& entry) { return found.count(entry.first) == 0; });
  for (const auto& [where, excess] : found) {
    Row& row = rows_[where];
    row.unseen.add(excess.unseen);
    row.disproved.add(excess.disproved);
    const TenantInfo* tenant = tenants_.find(where.first);
    const Snapshot::Gpu* gpu = state.find(where.second);
    if (tenant != nullptr && gpu != nullptr) name(*tenant, *gpu, row);
  }
}

void DeviceClaims::name(const TenantInfo& tenant, const Snapshot::Gpu& gpu, Row& row) {
  const Bytes least{gpu.total.count / kNamedPart};
  const auto if_large = [&](Bytes amount) { return amount > least ? amount : Bytes{}; };
  row.named = {.unseen = if_large(row.unseen.amount()), .disproved = if_large(row.disproved.amount())};
  const auto says = [&](Bytes amount) {
    return tenant.label() + ", uid " + std::to_string(tenant.uid) + ": reports " + format_size(amount) +
           " on GPU " + std::to_string(gpu.number) + " that NVML does not show";
  };
  if (row.named.disproved != Bytes{}) {
    if (!std::exchange(row.told_disproved, true))
      complaints_.add(tenant.account, Cause::device_claim,
                      says(row.named.disproved) + "; the arbiter counts what NVML shows");
  } else if (row.named.unseen != Bytes{} && !std::exchange(row.told_unseen, true)) {
    complaints_.add(
        tenant.account, Cause::device_claim,
        says(row.named.unseen) +
            ", perhaps because it is managed or imported from another process; it does not count as pinned",
        log::info);
  }
}

DeviceClaims::Excess DeviceClaims::of(TenantId tenant) const {
  Excess sum;
  for (auto row = rows_.lower_bound({tenant, {}}); row != rows_.end() && row->first.first == tenant; ++row) {
    sum.unseen += row->second.named.unseen;
    sum.disproved += row->second.named.disproved;
  }
  return sum;
}

}  // namespace sharedgpu
