// SPDX-License-Identifier: Apache-2.0
// Reads a ledger: splits its text into records and passes the content of the records to a visitor.
//
// Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "arbiter/core/model/lease_book.h"
#include "arbiter/ledger/records.h"

namespace sharedgpu {

struct LedgerReplay {
  unsigned records = 0;
  unsigned damaged = 0;    // number of skipped lines, including an incomplete last line
  unsigned unknown = 0;    // number of skipped records of kinds that only newer versions know
  std::uint64_t lost = 0;  // number of records that could not be written
  LedgerReplay& operator+=(const LedgerReplay& other) {
    records += other.records;
    damaged += other.damaged;
    unknown += other.unknown;
    lost += other.lost;
    return *this;
  }
};

// Passes the record of each line to `replayed`. For a damaged line, passes a LostRecord with `records` = 0.
// Skips records of a kind that only newer versions know.
LedgerReplay replay_ledger(std::string_view text, const std::function<void(const Record&)>& replayed);

// Receives the content of a ledger, in the order of the ledger. Times count from the boot in the last
// BootRecord. A checkpoint repeats older records that are still valid, so a call may have an earlier time
// than the call before it.
class LedgerVisitor {
 public:
  // An arbiter started. `rebooted`: the host was booted after the previous BootRecord.
  virtual void on_boot(const BootRecord& /*boot*/, bool /*rebooted*/) {}
  virtual void on_tenant(const TenantRecord&, Nanoseconds /*at*/) {}
  virtual void on_options(const OptionsRecord&, Nanoseconds /*at*/) {}
  virtual void on_class(const ClassRecord&) {}
  virtual void on_gang(const GangRecord&) {}
  virtual void on_group(const GroupRecord&) {}
  virtual void on_place(const PlaceRecord&) {}
  virtual void on_session(const SessionRecord&, Nanoseconds /*at*/) {}
  virtual void on_attach(const AttachRecord&) {}
  virtual void on_gone(const GoneRecord&) {}
  // A lease begins (on_grant), or ends (on_release). `at` is the time of the release. If the host went down
  // before the release, `at` is the time of the last record before the host went down. If the record of the
  // release was lost, `at` is the time of the last record before the loss. A second grant of an open lease
  // and a release of a closed lease are not reported.
  virtual void on_grant(const LeaseKey&, const OpenLease&) {}
  virtual void on_release(const LeaseKey&, const OpenLease&, Nanoseconds /*at*/) {}
  virtual void on_step_time(const StepTimeRecord&, Nanoseconds /*at*/) {}
  virtual void on_gpu_time(const GpuTimeRecord&) {}
  virtual void on_used(const UsedRecord&, Nanoseconds /*at*/) {}
  virtual void on_energy(const EnergyRecord&) {}
  virtual void on_begin(const BeginRecord&) {}
  virtual void on_over(const OverRecord&) {}
  virtual void on_end(const EndRecord&) {}
  virtual void on_gpu(const GpuRecord&) {}
  virtual void on_loss(const LossRecord&) {}
  virtual void on_past_loss(const PastLossRecord&) {}
  virtual void on_checkpoint(const CheckpointRecord&) {}
  virtual void on_complete() {}

 protected:
  ~LedgerVisitor() = default;
};

// Finds the beginnings and ends of leases in a ledger's records, even if records were lost or the host went
// down.
class LedgerReader {
 public:
  // Receives the ledger's records, oldest first.
  void read(const Record& record, LedgerVisitor& visitor);
  // Call this if the host went down. Releases the open leases.
  void end_boot(LedgerVisitor& visitor);

  const BootRecord& boot() const { return boot_; }
  Nanoseconds last_record() const { return last_; }  // the time of the last record of this boot
  Epoch last_epoch() const { return last_epoch_; }   // the highest epoch so far
  const std::map<LeaseKey, OpenLease>& open() const { return open_; }

 private:
  class Dispatch;
  void take(const BootRecord& boot, LedgerVisitor& visitor);
  void take(const LeaseRecord& lease, Nanoseconds at, LedgerVisitor& visitor);
  void grant(const LeaseKey& key, const OpenLease& lease, LedgerVisitor& visitor);
  void release(const LeaseKey& key, Nanoseconds at, LedgerVisitor& visitor);
  void take_loss();
  void end_checkpoint(LedgerVisitor& visitor);

  BootRecord boot_;
  Nanoseconds last_{};
  Epoch last_epoch_;
  // If records were lost, OpenLease::doubted of each lease open at that time is the time of the last record
  // before the loss.
  std::map<LeaseKey, OpenLease> open_;
  std::optional<std::set<LeaseKey>>
      granted_;  // leases granted so far in the checkpoint that is being read; nullopt outside of a
                 // checkpoint, or if the checkpoint lacks a record
};

}  // namespace sharedgpu
