// SPDX-License-Identifier: Apache-2.0
// The length of turns in each domain, which depends on the number of running sets. Counting running sets is
// slow, so this class counts them again only if an input has changed. Not thread-safe.
#pragma once

#include <vector>

#include "arbiter/core/model/model.h"
#include "arbiter/core/model/table.h"
#include "arbiter/core/scheduler/selection.h"

namespace sharedgpu {

// The values of one tenant from which the length of turns is computed.
struct TurnDemand {
  bool waits = false;
  bool takes_turns = false;  // the tenant waits, enters, runs, or leaves without having been revoked
  Nanoseconds measured{};    // mean duration of the tenant's handoffs; zero: none measured yet
  Nanoseconds expected{};    // `measured`, or a guess from the tenant's size if nothing was measured
};

class TurnLengths {
 public:
  // Until the GPU is used, the length of its turns follows from its rules alone.
  void add(const Gpu& gpu, const Rules& rules);
  void set_rules(const Gpu& gpu, const Rules& rules);
  void begin(const Domain& domain) { domains_.begin(domain); }
  // `demands`: one for each of the domain's tenants, in the same order. Call after selection.begin(), while
  // no tenant is chosen.
  void update(const Domain& domain, const std::vector<TurnDemand>& demands, Selection& selection,
              const MemoryBooks& memory);

  const TurnLength& of(const Domain& domain) const { return domains_[domain].turn; }
  const TurnLength& of(const Gpu& gpu) const { return gpus_[gpu].turn; }
  // The number of running sets that would take turns if all tenants wanted to run.
  unsigned sets(const Domain& domain) const { return domains_[domain].sets; }
  // The mean over the running sets of the GPU's domain that take turns, as of the last update that had a
  // measured handoff. The value of a set is the largest TurnDemand::measured of its tenants; sets without a
  // measured handoff are left out. Zero if no handoff was measured yet.
  Nanoseconds handoff(const Gpu& gpu) const { return gpus_[gpu].handoff; }

 private:
  struct Memory {
    std::vector<Bytes> usable;
    std::vector<Selection::Part> parts;
    bool operator==(const Memory&) const = default;
  };
  struct Handoffs {
    bool takes_turns = false;
    Nanoseconds measured{};
    Nanoseconds expected{};
    bool operator==(const Handoffs&) const = default;
  };
  struct DomainRow {
    TurnLength turn;
    unsigned sets = 1;
    unsigned waiting_sets = 0;
    Nanoseconds handoff{};
    // The inputs of the last computation.
    Memory memory;
    std::vector<Handoffs> handoffs;
    std::vector<bool> waits;
    bool computed = false;
  };
  struct GpuRow {
    TurnLength turn;
    Nanoseconds handoff{};
  };

  Nanoseconds mean_handoff(const Domain& domain, const std::vector<TurnDemand>& demands,
                           Selection& selection);

  Table<Domain, DomainRow> domains_;
  Table<Gpu, GpuRow> gpus_;
};

}  // namespace sharedgpu
