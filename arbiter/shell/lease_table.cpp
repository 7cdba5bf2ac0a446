// SPDX-License-Identifier: Apache-2.0
#include "arbiter/shell/lease_table.h"

#include <algorithm>
#include <tuple>

namespace sharedgpu {
namespace {

void sort_by_begin(std::vector<LeaseRow>& rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const LeaseRow& a, const LeaseRow& b) { return a.first < b.first; });
}

// One row for all that have the same key; `join` adds a lease to the row that there is. Leases come in the
// order in which they began.
template <class KeyOf, class Join>
std::vector<LeaseRow> grouped(std::vector<LeaseRow> leases, KeyOf key_of, Join join) {
  sort_by_begin(leases);
  std::map<decltype(key_of(leases.front())), std::size_t> places;
  std::vector<LeaseRow> rows;
  for (const LeaseRow& lease : leases) {
    const auto [place, is_new] = places.try_emplace(key_of(lease), rows.size());
    if (is_new) {
      rows.push_back(lease);
      continue;
    }
    LeaseRow& row = rows[place->second];
    join(row, lease);
    row.last = std::max(row.last, lease.last);
    row.open = row.open || lease.open;
  }
  return rows;
}

}  // namespace

void LeaseTable::add(const Record& record) {
  if (const auto* boot = std::get_if<BootRecord>(&record.what)) {
    if (boot->boot_id != boot_id_) {
      end_boot();
      latest_ = {};
    }
    boot_id_ = boot->boot_id;
    booted_ = boot->booted;
  } else if (const auto* tenant = std::get_if<TenantRecord>(&record.what)) {
    tenants_[tenant->tenant] = {.name = tenant->name, .uid = tenant->uid};
  } else if (const auto* lease = std::get_if<LeaseRecord>(&record.what)) {
    if (lease->grant) {
      open_.try_emplace(lease->key, OpenLease{.epoch = lease->epoch, .since = record.at});
    } else if (const auto entry = open_.find(lease->key); entry != open_.end()) {
      closed_.push_back(row(lease->key, entry->second.since, record.at));
      open_.erase(entry);
    }
  }
  latest_ = std::max(latest_, record.at);  // checkpoints tell of older times
}

// What was held then ended, as far as is known, with the last record of that boot.
void LeaseTable::end_boot() {
  for (const auto& [key, lease] : open_) closed_.push_back(row(key, lease.since, latest_));
  open_.clear();
}

LeaseRow LeaseTable::row(const LeaseKey& key, Nanoseconds from, Nanoseconds to) const {
  const auto tenant = tenants_.find(key.tenant);
  const Named named = tenant == tenants_.end() ? Named{} : tenant->second;
  to = std::max(from, to);
  return {.tenant = key.tenant,
          .name = named.name,
          .uid = named.uid,
          .step = key.step,
          .gpu = key.gpu,
          .held = to - from,
          .first = booted_ + from,
          .last = booted_ + to};
}

std::vector<LeaseRow> LeaseTable::leases() const {
  std::vector<LeaseRow> rows = closed_;
  for (const auto& [key, lease] : open_) rows.emplace_back(row(key, lease.since, latest_)).open = true;
  sort_by_begin(rows);
  return rows;
}

std::vector<LeaseRow> within(const std::vector<LeaseRow>& leases, Nanoseconds since, Nanoseconds until) {
  std::vector<LeaseRow> rows;
  for (LeaseRow lease : leases) {
    if (lease.last < since || lease.first >= until) continue;
    lease.open = lease.open && lease.last < until;
    lease.first = std::max(lease.first, since);
    lease.last = std::min(lease.last, until);
    lease.held = lease.last - lease.first;
    rows.push_back(lease);
  }
  return rows;
}

std::vector<LeaseRow> by_step(const std::vector<LeaseRow>& leases) {
  return grouped(
      leases,
      [](const LeaseRow& lease) { return std::tuple(lease.tenant, lease.name, lease.step, lease.gpu); },
      [](LeaseRow& row, const LeaseRow& lease) {
        row.held += lease.held;
        row.turns += lease.turns;
      });
}

std::vector<LeaseRow> by_tenant(const std::vector<LeaseRow>& leases) {
  auto key = [](const LeaseRow& lease) { return std::tuple(lease.tenant, lease.name, lease.gpu); };
  std::vector<LeaseRow> rows = grouped(leases, key, [](LeaseRow& row, const LeaseRow& lease) {
    // `last` is where the union of those before ends.
    row.held += std::max(lease.last - std::max(lease.first, row.last), Nanoseconds{});
    if (lease.first >= row.last) row.turns += lease.turns;
  });
  for (LeaseRow& row : rows) row.step.reset();
  return rows;
}

}  // namespace sharedgpu
