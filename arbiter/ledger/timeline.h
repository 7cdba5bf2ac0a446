// SPDX-License-Identifier: Apache-2.0
// A ledger as spans of time: the times in which each tenant held a GPU, waited, entered, evicted memory, or
// overran its turn.
//
// The ledger records the begin and the end of each lease. For the other spans it records only totals (in
// records of the kind "used"). If a total has grown between two records, a span as long as the growth lies
// between the times of these records. The leases show where the span ends: a wait and an entry end when the
// next lease begins, and overuse ends when the lease ends. The end of an eviction is recorded at once.
//
// Times are since 1970 in UTC, or since the host's boot if the ledger does not record the time of the boot.
// Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "arbiter/ledger/reader.h"
#include "arbiter/ledger/records.h"

namespace sharedgpu {

enum class SpanKind : std::uint8_t { lease, waiting, entering, evicting, overuse };

struct Span {
  SpanKind kind = SpanKind::lease;
  TenantId tenant;
  GpuUuid gpu;  // the GPU of a lease; zero for other spans
  Nanoseconds from{};
  Nanoseconds to{};
  bool open = false;  // a lease whose end the ledger does not have
};

class Timeline final : private LedgerVisitor {
 public:
  struct Who {
    TenantName name;
    ArrayElement element;
    std::uint32_t uid = 0;
    std::set<GpuUuid> gpus;  // the GPUs that the tenant has used
  };

  // Takes the ledger's records, oldest first.
  void add(const Record& record) { reader_.read(record, *this); }

  // All spans, ordered by the times at which they begin.
  std::vector<Span> spans() const;
  const std::map<TenantId, Who>& tenants() const { return tenants_; }

 private:
  struct Interval {
    Nanoseconds from{};
    Nanoseconds to{};
  };
  // The values of a tenant's last record of totals, and the tenant's leases since that record. All times
  // count from the boot of the host.
  struct Window {
    Nanoseconds began{};
    std::vector<Interval>
        held;  // the times in which the tenant held any GPU, except the lease that is open now
    std::map<GpuUuid, std::pair<unsigned, Nanoseconds>> open;  // for each GPU: number of steps that hold it,
                                                               // and when the first of them began
    Nanoseconds held_since{};
    Figures totals;
  };

  void on_boot(const BootRecord& boot, bool rebooted) override;
  void on_tenant(const TenantRecord& tenant, Nanoseconds at) override;
  void on_class(const ClassRecord& job) override;
  void on_begin(const BeginRecord& begin) override;
  void on_session(const SessionRecord& session, Nanoseconds at) override;
  void on_attach(const AttachRecord& attach) override;
  void on_gone(const GoneRecord& gone) override;
  void on_grant(const LeaseKey& key, const OpenLease& lease) override;
  void on_release(const LeaseKey& key, const OpenLease& lease, Nanoseconds at) override;
  void on_used(const UsedRecord& used, Nanoseconds at) override;

  void put(SpanKind kind, TenantId tenant, Interval when, const GpuUuid& gpu = {});
  void put_at_ends(SpanKind kind, TenantId tenant, const std::vector<Interval>& places, Nanoseconds time);

  LedgerReader reader_;
  Nanoseconds booted_{};  // since 1970
  std::map<TenantId, Who> tenants_;
  std::map<TenantId, Window> windows_;
  std::map<SessionId, TenantId> sessions_;
  std::map<std::pair<TenantId, SpanKind>, std::size_t> latest_;  // index in closed_ of the last such span
  std::vector<Span> closed_;
};

// Returns the parts of the spans that lie between the two times.
std::vector<Span> within(const std::vector<Span>& spans, Nanoseconds since, Nanoseconds until);

}  // namespace sharedgpu
