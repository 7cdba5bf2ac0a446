// SPDX-License-Identifier: Apache-2.0
#include "arbiter/gang/members.h"

#include <algorithm>

namespace sharedgpu {
namespace {

GangOrder out_of_contact(GangOrder order) {
  order.possible = false;
  return order;
}

// Returns true if the tenant may have work on the GPU that waits for the job's other nodes.
bool has_work(const GangReport& report) {
  return report.phase == Phase::running || (report.phase == Phase::leaving && !report.drained);
}

}  // namespace

const GangMembers::Gang* GangMembers::find(TenantId tenant) const {
  const auto it = rows_.find(tenant);
  return it == rows_.end() ? nullptr : &it->second;
}

void GangMembers::report(TenantId tenant, const Job& job, const GangReport& report, Nanoseconds now) {
  const auto [it, is_new] = rows_.try_emplace(tenant);
  Row& row = it->second;
  const Job known = row.job;
  if (is_new || known.run != job.run || (known.coordinator != job.coordinator && !row.is_corrected)) {
    row = {};
    row.heard = row.sought_since = now;
  }
  row.job = job;
  if (row.is_corrected) {
    row.job.nodes = known.nodes;
    row.job.coordinator = known.coordinator;
  }
  row.report = report;
  row.reported = now;
  row.due = row.sent + times_.pause;
  if (now >= row.due) send(row, now);
  // The core may have forgotten the tenant and its state, so it is told again that the tenant has turns
  // without orders.
  if (row.alone) begin_alone(tenant, row, row.started);
}

void GangMembers::correct(const Run& run, std::uint32_t nodes, const std::string& coordinator,
                          Nanoseconds now) {
  for (auto& [tenant, row] : rows_) {
    if (Run{row.job.number, row.job.run} != run || row.is_corrected) continue;
    row.is_corrected = true;
    row.job.nodes = nodes;
    if (row.job.coordinator == coordinator) continue;
    row.job.coordinator = coordinator;
    row.heard = now;
    send(row, now);
  }
}

void GangMembers::send(Row& row, Nanoseconds now) {
  Job job = row.job;
  job.is_new = job.is_new && !row.order;
  messages_.push_back({.node = job.coordinator, .message = write(job, row.report)});
  const bool answered = row.order && row.order->seen >= row.report.number;
  const bool is_new = now - row.reported < times_.heartbeat;
  row.sent = now;
  row.due = now + (!answered && is_new ? times_.repeat : times_.heartbeat);
}

GangMessage GangMembers::write(const Job& job, const GangReport& report) {
  return {.node = node_,
          .job = job.number,
          .run = job.run,
          .life = life_,
          .number = ++written_,
          .nodes = job.nodes,
          .is_new = job.is_new,
          .what = report};
}

// Answers a question of a coordinator: the job has no processes here.
void GangMembers::answer(const GangMessage& question, bool all_known) {
  if (!all_known) return;
  const Job job{.number = question.job, .run = question.run, .coordinator = question.node, .is_new = true};
  messages_.push_back({.node = job.coordinator, .message = write(job, {})});
}

void GangMembers::hear(const GangMessage& message, bool all_known, Nanoseconds now) {
  heard_.hear(message.node, now);
  const auto it = std::find_if(rows_.begin(), rows_.end(), [&](const auto& row) {
    return row.second.job.number == message.job && row.second.job.run == message.run;
  });
  const bool asks = std::holds_alternative<GangQuestion>(message.what);
  if (asks && it == rows_.end()) return answer(message, all_known);
  if (asks) return send(it->second, now);
  if (message.reader != life_ || it == rows_.end()) return;
  auto& [tenant, row] = *it;
  if (!row.newest.take(message)) return;
  row.heard = now;
  const auto* order = std::get_if<GangOrder>(&message.what);
  if (order == nullptr) return;
  const bool is_news = row.contact != Contact::held || row.order != *order;
  row.order = *order;
  if (order->apart) return give_up(tenant, row, now);
  set_contact(tenant, row, Contact::held);
  if (is_news) orders_.push_back({.tenant = tenant, .order = *order});
}

void GangMembers::excuse(const GangMessage& message, Nanoseconds now) {
  for (auto& [tenant, row] : rows_)
    if (row.job.number == message.job && row.contact == Contact::sought) row.heard = now;
}

// If the tenant has no work on the GPU, the command becomes `wait`. The tenant then leaves its place in the
// running set to the first job in ApartLine.
void GangMembers::give_up(TenantId tenant, Row& row, Nanoseconds now) {
  if (row.contact == Contact::given_up) return;
  set_contact(tenant, row, Contact::given_up);
  row.began = has_work(row.report);
  if (row.order) {
    GangOrder order = out_of_contact(*row.order);
    if (!row.began) order.command = GangCommand::wait;
    orders_.push_back({.tenant = tenant, .order = order});
  }
  row.apart_since = std::max(now, row.sought_since + times_.started);
  line_.need(row.apart_since);
}

void GangMembers::begin_alone(TenantId tenant, Row& row, Nanoseconds started) {
  row.alone = true;
  row.started = started;
  orders_.push_back({.tenant = tenant, .order = std::nullopt, .started = started});
}

void GangMembers::advance_line(Nanoseconds now) {
  for (auto& [tenant, row] : rows_)
    if (row.contact == Contact::given_up && !row.alone)
      if (const auto started = place_in_line(row, now)) begin_alone(tenant, row, *started);
  line_.advance(any_waits(), now);
}

// Returns nullopt if the job may not begin yet; otherwise the time at which Slurm started the job, or zero if
// the job begins without waiting for its place in the line. A job that had work on the GPU may continue. If
// Slurm does not answer for long, or does not list the job, the job may begin, and Gangs::goes_before()
// orders such jobs by number.
std::optional<Nanoseconds> GangMembers::place_in_line(const Row& row, Nanoseconds now) const {
  const auto started =
      line_.may_begin(row.job.number, row.apart_since, [this](std::uint32_t job) { return has_passed(job); });
  if (started) return started;
  const Nanoseconds told = line_.lists(row.job.number) ? line_.listed_at() : row.apart_since;
  const bool may = row.began || now - std::max(row.apart_since, told) >= times_.unlisted;
  return may ? std::optional(Nanoseconds{}) : std::nullopt;
}

// Returns true if the job has processes here, and either has turns here without orders or has all of its
// nodes in contact. Later jobs in the line do not wait for such a job.
bool GangMembers::has_passed(std::uint32_t job) const {
  return std::any_of(rows_.begin(), rows_.end(), [&](const auto& entry) {
    const Row& row = entry.second;
    const bool agrees = row.contact == Contact::held && row.order && row.order->possible;
    return row.job.number == job && row.report.present && (row.alone || agrees);
  });
}

bool GangMembers::any_waits() const {
  return std::any_of(rows_.begin(), rows_.end(), [](const auto& entry) {
    return entry.second.contact == Contact::given_up && !entry.second.alone;
  });
}

void GangMembers::set_contact(TenantId tenant, Row& row, Contact contact) {
  if (row.contact == contact) return;
  row.contact = contact;
  row.alone = false;
  changes_.push_back(tenant);
}

// Returns the length of silence after which the coordinator counts as lost. If the coordinator is lost
// already, or has never answered, returns the length after which it is given up.
Nanoseconds GangMembers::patience(const Row& row) const {
  switch (row.contact) {
    case Contact::sought:
      return heard_.has(row.job.coordinator, row.sought_since) ? times_.gone : times_.never;
    case Contact::held:
      return times_.silence;
    case Contact::lost:
      return times_.gone;
    case Contact::given_up:
      break;
  }
  return Nanoseconds::max();
}

void GangMembers::advance(Nanoseconds now) {
  const std::size_t ended = std::erase_if(rows_, [&](const auto& row) {
    return !row.second.report.present && now - row.second.reported >= times_.silence;
  });
  if (ended > 0) line_.need(now);  // the job of a forgotten tenant may have ended
  for (auto& [tenant, row] : rows_) {
    if (now >= row.due) send(row, now);
    if (!row.order && !row.is_doubted && row.contact == Contact::sought &&
        now - row.sought_since >= times_.doubt) {
      row.is_doubted = true;
      doubtful_.emplace_back(row.job.number, row.job.run);
    }
    // Reports a coordinator that has not answered for the time `never`, if its node has sent a message lately
    // (patience()). A coordinator whose node has sent none is given up after this time (below).
    if (row.contact == Contact::sought && !row.is_told && now - row.heard >= times_.never &&
        patience(row) > times_.never) {
      row.is_told = true;
      changes_.push_back(tenant);
    }
    if (now - row.heard < patience(row)) continue;
    if (row.contact == Contact::held) {
      set_contact(tenant, row, Contact::lost);
      orders_.push_back({.tenant = tenant, .order = out_of_contact(*row.order)});
    } else {
      give_up(tenant, row, now);
    }
  }
  advance_line(now);
}

std::optional<Nanoseconds> GangMembers::wake() const {
  std::optional<Nanoseconds> first = line_.wake(any_waits());
  for (const auto& [tenant, row] : rows_) {
    Nanoseconds at = row.due;
    if (row.contact != Contact::given_up) at = std::min(at, row.heard + patience(row));
    if (!first || at < *first) first = at;
  }
  return first;
}

}  // namespace sharedgpu
