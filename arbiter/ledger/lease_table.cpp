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

// Returns one row for each key; `join` adds a lease to an existing row. Leases are joined in the order in
// which they began.
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
    if (!lease.lost.empty()) row.lost = lease.lost;
  }
  return rows;
}

}  // namespace

void LeaseTable::on_boot(const BootRecord& boot, bool) { booted_ = boot.booted; }

void LeaseTable::on_tenant(const TenantRecord& tenant, Nanoseconds) {
  Holder& holder = holders_[tenant.tenant];
  const bool same = holder.name == tenant.name;
  holder = {.name = tenant.name,
            .element = same ? holder.element : ArrayElement{},
            .uid = tenant.uid,
            .run = same ? holder.run : 0};
}

void LeaseTable::on_class(const ClassRecord& job) { holders_[job.tenant].element = job.element; }

void LeaseTable::on_begin(const BeginRecord& begin) { ++holders_[begin.tenant].run; }

// In the ledger, the record of a control group's highest host memory comes after the leases. So leases() sets
// LeaseRow::host.
void LeaseTable::on_used(const UsedRecord& used, Nanoseconds) {
  if (used.figures.host == Bytes{}) return;
  Bytes& highest = hosts_[{used.tenant, holder(used.tenant).name}];
  highest = std::max(highest, used.figures.host);
}

void LeaseTable::on_loss(const LossRecord& loss) {
  const std::string fault = text_of(loss.fault);
  const auto is_of = [&](TenantId tenant, const GpuUuid& gpu) {
    return tenant == loss.tenant && gpu == loss.gpu;
  };
  bool is_open = false;
  for (const auto& [key, lease] : reader_.open()) {
    if (!is_of(key.tenant, key.gpu)) continue;
    losses_[key] = fault;
    is_open = true;
  }
  if (is_open) return;
  const unsigned run = holder(loss.tenant).run;
  const auto last = std::find_if(closed_.rbegin(), closed_.rend(), [&](const LeaseRow& row) {
    return is_of(row.tenant, row.gpu) && row.run == run;
  });
  if (last != closed_.rend()) last->lost = fault;
}

void LeaseTable::on_release(const LeaseKey& key, const OpenLease& lease, Nanoseconds at) {
  closed_.push_back(row(key, lease.since, at));
  if (auto loss = losses_.extract(key)) closed_.back().lost = std::move(loss.mapped());
}

LeaseTable::Holder LeaseTable::holder(TenantId tenant) const {
  const auto holder = holders_.find(tenant);
  return holder == holders_.end() ? Holder{} : holder->second;
}

LeaseRow LeaseTable::row(const LeaseKey& key, Nanoseconds from, Nanoseconds to) const {
  const Holder by = holder(key.tenant);
  to = std::max(from, to);
  return {.tenant = key.tenant,
          .name = by.name,
          .element = by.element,
          .run = by.run,
          .uid = by.uid,
          .step = key.step,
          .gpu = key.gpu,
          .held = to - from,
          .first = booted_ + from,
          .last = booted_ + to};
}

std::vector<LeaseRow> LeaseTable::leases() const {
  std::vector<LeaseRow> rows = closed_;
  for (const auto& [key, lease] : reader_.open())
    rows.emplace_back(row(key, lease.since, reader_.last_record())).open = true;
  for (LeaseRow& row : rows)
    if (const auto host = hosts_.find({row.tenant, row.name}); host != hosts_.end()) row.host = host->second;
  sort_by_begin(rows);
  return rows;
}

std::vector<LeaseRow> within(const std::vector<LeaseRow>& leases, Nanoseconds since, Nanoseconds until) {
  std::vector<LeaseRow> rows;
  for (LeaseRow lease : leases) {
    if (lease.last < since || lease.first >= until) continue;
    lease.open = lease.open && lease.last < until;
    if (lease.last > until) lease.lost.clear();
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
    // row.last is the latest end of the leases joined so far
    row.held += std::max(lease.last - std::max(lease.first, row.last), Nanoseconds{});
    if (lease.first >= row.last) row.turns += lease.turns;
  });
  for (LeaseRow& row : rows) row.step.reset();
  return rows;
}

}  // namespace sharedgpu
