// SPDX-License-Identifier: Apache-2.0
// Compares the device memory that tenants report with the memory that NVML shows for their processes. The log
// and the status name tenants that report more than NVML shows. After two surveys in a row that contradict a
// report, the core counts only the memory that NVML shows (Evidence).
//
// A report and a survey are never simultaneous, so a single difference proves nothing. A report is
// contradicted only if two surveys in a row differ from it. For each survey, the differences of all processes
// of a tenant on a GPU are added up. The log and the status name the tenant if at least ten of the last sixty
// sums exceed an eighth of the GPU. Stopped processes are ignored, because they cannot report. Sessions with
// the backend `managed` are ignored, because NVML shows no managed memory. NVML also does not show memory
// that a process has imported from another process; such memory is pinned. So surveys can disprove only
// reports of evictable memory. For pinned memory, the log says only that NVML does not show this memory.
//
// The class Unmanaged finds tenants that report less memory than they hold. Event-loop thread only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "arbiter/core/snapshot.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

// Records amounts. amount() is the largest amount that at least ten of the last sixty reach.
class Recurring {
 public:
  void add(Bytes bytes) {
    last_[next_] = bytes;
    next_ = (next_ + 1) % last_.size();
  }
  Bytes amount() const;

 private:
  std::array<Bytes, 60> last_ = {};
  std::size_t next_ = 0;
};

class DeviceClaims {
 public:
  DeviceClaims(const Tenants& tenants, Complaints& complaints) : tenants_(tenants), complaints_(complaints) {}

  // Call after the core has handled a survey.
  void look(const Snapshot& state);

  // Memory that a tenant reports as being on its GPUs, and that NVML does not show. Zero if the tenant is not
  // named.
  struct Excess {
    Bytes unseen;     // all memory that NVML does not show
    Bytes disproved;  // the part that is certainly not on the GPUs
    bool operator==(const Excess&) const = default;
  };
  Excess of(TenantId tenant) const;

 private:
  struct Row {
    Recurring unseen;
    Recurring disproved;
    Excess named;
    bool told_unseen = false;
    bool told_disproved = false;
  };
  using OnGpu = std::pair<TenantId, GpuUuid>;

  void name(const TenantInfo& tenant, const Snapshot::Gpu& gpu, Row& row);

  const Tenants& tenants_;
  Complaints& complaints_;
  std::map<OnGpu, Row> rows_;
};

}  // namespace sharedgpu
