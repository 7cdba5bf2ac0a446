// SPDX-License-Identifier: Apache-2.0
// Selection: a choice of tenants of a domain, and whether these tenants fit together on the domain's GPUs.
// The selection sums the memory that the chosen tenants need and the memory that the other tenants cannot
// evict.
//
// The needs of each session are computed once, in begin(), so the cost of choosing or dropping a tenant does
// not depend on the number of tenants. A selection becomes invalid when the state of the core changes, for
// example when a tenant enters or leaves the running set. Not thread-safe.
#pragma once

#include <functional>
#include <vector>

#include "arbiter/core/memory/memory_books.h"
#include "arbiter/core/memory/residency.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/model/table.h"

namespace sharedgpu {

class Selection {
 public:
  enum class Basis : std::uint8_t {
    current,  // the present footprints
    peak,     // for each session, the largest footprint since its turn began
  };

  void add(const Session& session) { sessions_.begin(session); }
  void add(const Tenant& tenant) { chosen_.begin(tenant); }
  void add(const Gpu& gpu) { gpus_.begin(gpu); }

  // Starts with no tenant chosen.
  void begin(const Domain& domain, const MemoryBooks& memory, const Residencies& at,
             Basis basis = Basis::current);
  void choose(const Tenant& tenant, bool chosen);
  bool chosen(const Tenant& tenant) const { return chosen_[tenant]; }

  // Returns true if the chosen tenants fit on all GPUs of the domain.
  bool fits() const;
  // Returns true if the chosen tenants may run at the same time on all GPUs of `tenant`, and their memory
  // fits on those GPUs on which `tenant` needs memory.
  bool fits(const Tenant& tenant) const;
  // Returns true if all tenants of the domain fit together.
  bool everybody_fits() const;
  // Returns true if the tenant can run without disturbing any other tenant. The tenant then has no memory,
  // shares none of its GPUs with an exclusive tenant, and uses no GPU on which two tenants are unsettled
  // (Tenant::unsettled).
  bool disturbs_nobody(const Tenant& tenant) const;

  // Divides `tenants` into the running sets that would take turns if all of them waited. Each set starts with
  // the first remaining tenant, and includes all remaining tenants that fit beside it. Calls `each` with the
  // members of each set and returns the number of sets, at most 64. Call only while no tenant is chosen; none
  // is chosen afterwards.
  unsigned for_each_set(std::vector<const Tenant*> tenants,
                        const std::function<void(const std::vector<const Tenant*>&)>& each);

  struct Part {
    Bytes needs;
    Bytes keeps;
    bool operator==(const Part&) const = default;
  };
  Part part(const Session& session) const { return sessions_[session].part; }

 private:
  struct SessionRow {
    Part part;
    Bytes demand;  // the present footprint, even if the basis is `peak`
  };
  struct GpuRow {
    Bytes usable;
    Bytes load;
    unsigned members = 0;    // chosen tenants on the GPU
    unsigned exclusive = 0;  // chosen tenants that must run alone (Tenant::exclusive)
    Bytes needed_by_all;
    unsigned users = 0;  // all tenants on the GPU
    unsigned exclusive_users = 0;
    unsigned unsettled = 0;  // chosen tenants with Tenant::unsettled
    unsigned unsettled_users = 0;
    bool has_time() const { return (exclusive == 0 || members <= 1) && unsettled <= 1; }
    bool has_time_for_all() const { return (exclusive_users == 0 || users <= 1) && unsettled_users <= 1; }
  };
  template <class Count>
  void for_each_gpu(const Tenant& tenant, Count count);

  const Domain* domain_ = nullptr;
  Table<Session, SessionRow> sessions_;
  Table<Tenant, char> chosen_;
  Table<Gpu, GpuRow> gpus_;
};

}  // namespace sharedgpu
