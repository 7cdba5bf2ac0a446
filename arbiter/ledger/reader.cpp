// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/reader.h"

#include <algorithm>
#include <vector>

namespace sharedgpu {

LedgerReplay replay_ledger(std::string_view text, const std::function<void(const Record&)>& replayed) {
  LedgerReplay replay;
  Nanoseconds last{};
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const bool torn = end == text.npos;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(torn ? text.size() : end + 1);
    if (line.empty()) continue;
    const auto record = torn ? std::nullopt : parse_record(line);
    if (!torn && !record && is_of_unknown_kind(line)) {
      ++replay.unknown;
      continue;
    }
    if (!record) {
      ++replay.damaged;
      replayed({.at = last, .what = LostRecord{}});  // a damaged line counts as a lost record, which may have
                                                     // been the end of a lease
      continue;
    }
    ++replay.records;
    if (const auto* loss = std::get_if<LostRecord>(&record->what)) replay.lost += loss->records;
    last = record->at;
    replayed(*record);
  }
  return replay;
}

// Passes a record to the method for its type.
class LedgerReader::Dispatch {
 public:
  Dispatch(LedgerReader& reader, LedgerVisitor& visitor, Nanoseconds at)
      : reader_(reader), visitor_(visitor), at_(at) {}

  void operator()(const BootRecord& r) { reader_.take(r, visitor_); }
  void operator()(const TenantRecord& r) { visitor_.on_tenant(r, at_); }
  void operator()(const OptionsRecord& r) { visitor_.on_options(r, at_); }
  void operator()(const ClassRecord& r) { visitor_.on_class(r); }
  void operator()(const GangRecord& r) { visitor_.on_gang(r); }
  void operator()(const GroupRecord& r) { visitor_.on_group(r); }
  void operator()(const PlaceRecord& r) { visitor_.on_place(r); }
  void operator()(const EndRecord& r) { visitor_.on_end(r); }
  void operator()(const SessionRecord& r) { visitor_.on_session(r, at_); }
  void operator()(const AttachRecord& r) { visitor_.on_attach(r); }
  void operator()(const GoneRecord& r) { visitor_.on_gone(r); }
  void operator()(const LeaseRecord& r) { reader_.take(r, at_, visitor_); }
  void operator()(const CheckpointRecord& r) {
    reader_.last_epoch_ = std::max(reader_.last_epoch_, r.epoch);
    reader_.granted_.emplace();
    visitor_.on_checkpoint(r);
  }
  void operator()(const CompleteRecord&) {
    reader_.end_checkpoint(visitor_);
    visitor_.on_complete();
  }
  void operator()(const StepTimeRecord& r) { visitor_.on_step_time(r, at_); }
  void operator()(const GpuTimeRecord& r) { visitor_.on_gpu_time(r); }
  void operator()(const UsedRecord& r) { visitor_.on_used(r, at_); }
  void operator()(const EnergyRecord& r) { visitor_.on_energy(r); }
  void operator()(const BeginRecord& r) { visitor_.on_begin(r); }
  void operator()(const OverRecord& r) { visitor_.on_over(r); }
  void operator()(const GpuRecord& r) { visitor_.on_gpu(r); }
  void operator()(const LossRecord& r) { visitor_.on_loss(r); }
  void operator()(const PastLossRecord& r) { visitor_.on_past_loss(r); }
  void operator()(const SeenRecord&) {}
  void operator()(const LostRecord&) { reader_.take_loss(); }

 private:
  LedgerReader& reader_;
  LedgerVisitor& visitor_;
  const Nanoseconds at_;
};

void LedgerReader::read(const Record& record, LedgerVisitor& visitor) {
  std::visit(Dispatch(*this, visitor, record.at), record.what);
  last_ = std::max(last_, record.at);  // record.at may be earlier: a checkpoint repeats older records
}

void LedgerReader::take(const BootRecord& boot, LedgerVisitor& visitor) {
  const bool rebooted = boot.boot_id != boot_.boot_id;
  if (rebooted) {
    end_boot(visitor);
    last_ = {};
  }
  boot_ = boot;
  visitor.on_boot(boot, rebooted);
}

void LedgerReader::end_boot(LedgerVisitor& visitor) {
  while (!open_.empty()) release(LeaseKey(open_.begin()->first), last_, visitor);
}

void LedgerReader::take(const LeaseRecord& lease, Nanoseconds at, LedgerVisitor& visitor) {
  last_epoch_ = std::max(last_epoch_, lease.epoch);
  if (lease.grant)
    grant(lease.key, {.epoch = lease.epoch, .since = at}, visitor);
  else
    release(lease.key, at, visitor);
}

void LedgerReader::grant(const LeaseKey& key, const OpenLease& lease, LedgerVisitor& visitor) {
  // If the lease is open from an earlier turn, the record of its release was lost.
  if (const auto open = open_.find(key); open != open_.end() && open->second.epoch != lease.epoch)
    release(key, std::min(open->second.doubted.value_or(last_), lease.since), visitor);
  const auto [open, is_new] = open_.try_emplace(key, lease);
  open->second.doubted.reset();
  if (granted_) granted_->insert(key);
  if (is_new) visitor.on_grant(key, lease);
}

void LedgerReader::release(const LeaseKey& key, Nanoseconds at, LedgerVisitor& visitor) {
  const auto open = open_.find(key);
  if (open == open_.end()) return;
  const OpenLease lease = open->second;
  open_.erase(open);
  visitor.on_release(key, lease, at);
}

// A checkpoint that lacks a record does not show which leases have ended: the missing record may be the grant
// of an open lease.
void LedgerReader::take_loss() {
  granted_.reset();
  for (auto& [key, lease] : open_)
    if (!lease.doubted) lease.doubted = last_;
}

// A whole checkpoint grants all open leases again. If the checkpoint does not grant an open lease, the record
// of the lease's release was lost.
void LedgerReader::end_checkpoint(LedgerVisitor& visitor) {
  if (!granted_) return;
  std::vector<std::pair<LeaseKey, Nanoseconds>> ended;
  for (const auto& [key, lease] : open_)
    if (granted_->count(key) == 0) ended.emplace_back(key, lease.doubted.value_or(last_));
  for (const auto& [key, at] : ended) release(key, at, visitor);
  granted_.reset();
}

}  // namespace sharedgpu
