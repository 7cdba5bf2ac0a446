// SPDX-License-Identifier: Apache-2.0
#include "bench/simulator/ledger_trace.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "arbiter/ledger/files.h"
#include "arbiter/ledger/reader.h"

namespace sharedgpu {
namespace {

// Converts a size to hundredths of the GPU's memory, the unit of Stage.
unsigned hundredths(Bytes size, Bytes memory) {
  const std::uint64_t rounded_up = (size.count * 100 + memory.count - 1) / memory.count;
  return static_cast<unsigned>(std::clamp<std::uint64_t>(rounded_up, 1, 100));
}

Nanoseconds times(Nanoseconds time, double factor) {
  return Nanoseconds(static_cast<Nanoseconds::rep>(static_cast<double>(time.count()) * factor));
}

Claims claims_of(const JobOptions& options) {
  Claims claims;
  claims.units = std::max(options.units, 1u);
  claims.priority = options.priority;
  if (options.share_request == 0) return claims;
  claims.request = options.share_request / 100.0;
  claims.limit = options.share_limit != 0 ? options.share_limit / 100.0 : 1;
  claims.timed = true;
  return claims;
}

}  // namespace

void LedgerTrace::add(const Record& record) {
  table_.add(record);
  reader_.read(record, *this);
}

void LedgerTrace::on_options(const OptionsRecord& options, Nanoseconds) {
  summary_of(options.tenant).claims = claims_of(options.options);
}

void LedgerTrace::on_grant(const LeaseKey& key, const OpenLease&) {
  Summary& summary = summary_of(key.tenant);
  if (summary.held.empty()) ++summary.turns;
  summary.held.insert({key.gpu, key.step});
}

void LedgerTrace::on_release(const LeaseKey& key, const OpenLease&, Nanoseconds) {
  summary_of(key.tenant).held.erase({key.gpu, key.step});
}

void LedgerTrace::on_used(const UsedRecord& used, Nanoseconds) {
  if (used.step != StepName{}) return;  // skips a step's record, since the tenant's record includes all steps
  Summary& summary = summary_of(used.tenant);
  summary.footprint = used.figures.footprint;
  if (sums_) summary.waited_before = used.figures.waited;
  summary.waited = used.figures.waited - summary.waited_before;
  if (summary.turns > 1 || summary.first_known) return;
  summary.waited_first = summary.waited;
  summary.first_known = summary.turns == 1;
}

void LedgerTrace::on_checkpoint(const CheckpointRecord&) { sums_ = summaries_.empty(); }

LedgerTrace::Summary& LedgerTrace::summary_of(TenantId tenant) {
  const LeaseTable::Holder holder = table_.holder(tenant);
  return summaries_[{tenant, holder.name, holder.run}];
}

Status LedgerTrace::read(const std::string& path, unsigned& damaged) {
  std::vector<std::string> texts;
  if (Status read = read_ledger(path, Extent::all_files, texts); !read.ok()) return read;
  for (const std::string& text : texts)
    damaged += replay_ledger(text, [this](const Record& record) { add(record); }).damaged;
  return {};
}

LedgerTrace::Replay LedgerTrace::replay(Bytes memory) const {
  // Steps that hold their tenant's lease at the same time form one turn.
  std::map<GpuUuid, std::map<Who, std::vector<LeaseRow>>> gpus;
  struct Life {
    Summary summary = {};
    std::set<GpuUuid> places = {};
    Nanoseconds first{};  // beginning of the tenant's first lease on any GPU
    Nanoseconds came{};
  };
  std::map<Who, Life> lives;
  Nanoseconds begin = Nanoseconds::max();
  for (const LeaseRow& lease : table_.leases()) {
    const Who who{lease.tenant, lease.name, lease.run};
    const auto [entry, is_new] = lives.try_emplace(who);
    Life& life = entry->second;
    life.places.insert(lease.gpu);
    if (is_new) {
      if (const auto known = summaries_.find(who); known != summaries_.end()) life.summary = known->second;
      life.first = lease.first;
      life.came = lease.first - life.summary.waited_first;
      begin = std::min(begin, life.came);
    }
    std::vector<LeaseRow>& turns = gpus[lease.gpu][who];
    if (!turns.empty() && lease.first <= turns.back().last)
      turns.back().last = std::max(turns.back().last, lease.last);
    else
      turns.push_back(lease);
  }

  Replay replay;
  for (const auto& [gpu, tenants] : gpus) {
    replay.names.push_back(gpu);
    std::vector<Program>& programs = replay.gpus.emplace_back();
    for (const auto& [who, turns] : tenants) {
      const Life& life = lives.at(who);
      const Summary& summary = life.summary;
      Program& program = programs.emplace_back();
      program.claims = summary.claims;
      program.arrival = (turns.front().first == life.first ? life.came : turns.front().first) - begin;
      program.size = summary.footprint == Bytes{}
                         ? 100
                         : hundredths({summary.footprint.count / life.places.size()}, memory);
      replay.unsized += summary.footprint == Bytes{} ? 1 : 0;
      Nanoseconds gaps{};
      for (std::size_t i = 1; i < turns.size(); ++i) gaps += turns[i].first - turns[i - 1].last;
      const Nanoseconds waited = summary.waited - summary.waited_first;
      const double wanted_none =
          gaps > Nanoseconds{}
              ? 1 - std::min(1.0, static_cast<double>(waited.count()) / static_cast<double>(gaps.count()))
              : 0;
      for (std::size_t i = 0; i < turns.size(); ++i) {
        const Nanoseconds gap = i + 1 < turns.size() ? turns[i + 1].first - turns[i].last : Nanoseconds{};
        program.pieces.push_back(
            {.burst = std::max<Nanoseconds>(turns[i].last - turns[i].first, std::chrono::microseconds(1)),
             .pause = times(gap, wanted_none)});
      }
    }
  }
  return replay;
}

}  // namespace sharedgpu
