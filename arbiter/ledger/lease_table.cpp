// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/lease_table.h"

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
    Named& named = tenants_[tenant->tenant];
    named = {.name = tenant->name, .uid = tenant->uid, .run = named.name == tenant->name ? named.run : 0};
  } else if (const auto* begin = std::get_if<BeginRecord>(&record.what)) {
    ++tenants_[begin->tenant].run;
  } else if (const auto* lease = std::get_if<LeaseRecord>(&record.what)) {
    if (lease->grant)
      grant(lease->key, {.epoch = lease->epoch, .since = record.at});
    else
      close(lease->key, record.at);
  } else if (std::holds_alternative<CheckpointRecord>(record.what)) {
    told_.emplace();
  } else if (std::holds_alternative<CompleteRecord>(record.what)) {
    end_untold();
  } else if (std::holds_alternative<LostRecord>(record.what) && !lost_) {
    lost_ = latest_;
  }
  latest_ = std::max(latest_, record.at);  // checkpoints tell of older times
}

// Where another turn's lease is open still, its release was lost.
void LeaseTable::grant(const LeaseKey& key, const OpenLease& lease) {
  if (const auto open = open_.find(key); open != open_.end() && open->second.epoch != lease.epoch)
    close(key, std::min(lost_.value_or(latest_), lease.since));
  open_.try_emplace(key, lease);
  if (told_) told_->insert(key);
}

void LeaseTable::close(const LeaseKey& key, Nanoseconds at) {
  const auto lease = open_.find(key);
  if (lease == open_.end()) return;
  closed_.push_back(row(key, lease->second.since, at));
  open_.erase(lease);
}

// A whole checkpoint tells all that is open. What it does not tell has ended, and who said when was lost: it
// was seen up to the last record before that.
void LeaseTable::end_untold() {
  if (!told_) return;
  std::vector<LeaseKey> ended;
  for (const auto& [key, lease] : open_)
    if (told_->count(key) == 0) ended.push_back(key);
  for (const LeaseKey& key : ended) close(key, lost_.value_or(latest_));
  told_.reset();
  lost_.reset();
}

// What was held then ended, as far as is known, with the last record of that boot.
void LeaseTable::end_boot() {
  for (const auto& [key, lease] : open_) closed_.push_back(row(key, lease.since, latest_));
  open_.clear();
  lost_.reset();
}

LeaseRow LeaseTable::row(const LeaseKey& key, Nanoseconds from, Nanoseconds to) const {
  const auto tenant = tenants_.find(key.tenant);
  const Named named = tenant == tenants_.end() ? Named{} : tenant->second;
  to = std::max(from, to);
  return {.tenant = key.tenant,
          .name = named.name,
          .run = named.run,
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
      [](const LeaseRow& lease) {
        return std::tuple(lease.tenant, lease.name, lease.run, lease.step, lease.gpu);
      },
      [](LeaseRow& row, const LeaseRow& lease) {
        row.held += lease.held;
        row.turns += lease.turns;
      });
}

std::vector<LeaseRow> by_tenant(const std::vector<LeaseRow>& leases) {
  auto key = [](const LeaseRow& lease) { return std::tuple(lease.tenant, lease.name, lease.run, lease.gpu); };
  std::vector<LeaseRow> rows = grouped(leases, key, [](LeaseRow& row, const LeaseRow& lease) {
    // `last` is where the union of those before ends.
    row.held += std::max(lease.last - std::max(lease.first, row.last), Nanoseconds{});
    if (lease.first >= row.last) row.turns += lease.turns;
  });
  for (LeaseRow& row : rows) row.step.reset();
  return rows;
}

}  // namespace sharedgpu
