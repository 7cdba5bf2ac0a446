// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/turns/gangs.h"

#include <tuple>

namespace sharedgpu {

void Gangs::obey(const Tenant& tenant, const GangOrdered& event) {
  Row& its = rows_[tenant];
  its.ordered = event.order.has_value();
  its.entered_apart = !its.ordered && (its.entered_apart || its.sent.phase != Phase::out);
  its.started = its.ordered ? Nanoseconds::max() : event.started;
  its.order = event.order.value_or(GangOrder{});
  if (its.order.command != GangCommand::leave) its.steps = its.order.steps;
}

void Gangs::begin(const Domain& domain) {
  for (const Tenant* tenant : domain.tenants) {
    if (tenant->job == 0) continue;
    Row& its = rows_[*tenant];
    its.offers = its.ends = false;
  }
}

void Gangs::publish(const Tenant& tenant, GangReport report) {
  Row& its = rows_[tenant];
  if (report.phase == Phase::out || report.phase == Phase::leaving) its.broken = false;
  if (!report.present) its.entered_apart = false;
  if (report.present) {
    report.offers = its.offers;
    report.settled = its.settled;
    report.ends = report.ends || its.ends || its.broken;
  }
  if (report.phase == Phase::out) its.steps = its.order.steps;  // a tenant that is out owes no submission
  report.steps = its.steps;
  report.number = its.sent.number;
  if (report == its.sent && report.number != 0) return;
  report.number = ++last_number_;
  if (its.sent.offers && !report.offers) its.withdrawn = report.number;
  its.sent = report;
  effects_.put(TellGang{.tenant = tenant.id, .report = report});
}

bool Gangs::is_bound(const Tenant& tenant) const {
  if (!tenant.gang) return false;
  const Row& its = rows_[tenant];
  return its.offers || (its.sent.present && its.sent.offers) || its.order.seen < its.withdrawn;
}

bool Gangs::goes_before(const Tenant& one, const Tenant& other) const {
  const auto place = [this](const Tenant& its) {
    return std::tuple(!rows_[its].entered_apart, rows_[its].started, its.job);
  };
  return place(one) < place(other);
}

bool Gangs::is_elder(const Tenant& one, const Tenant& other) const {
  return std::tie(rows_[one].order.since, one.job) < std::tie(rows_[other].order.since, other.job);
}

}  // namespace sharedgpu
