// SPDX-License-Identifier: Apache-2.0
// Which tenants fit together: what a domain's GPUs would carry if the chosen tenants had all that they need,
// beside what the others cannot give up.
//
// What each session needs and keeps is computed once, in begin(); choosing a tenant or dropping it costs the
// same for many tenants as for few. A selection is void when a tenant enters or leaves. One thread at a time.
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
    current,  // the footprints as they are
    peak,     // or as they were at most since each session's turn began
  };

  void add(const Session& session) { sessions_.begin(session); }
  void add(const Tenant& tenant) { chosen_.begin(tenant); }
  void add(const Gpu& gpu) { gpus_.begin(gpu); }

  // Nobody is chosen then.
  void begin(const Domain& domain, const MemoryBooks& memory, const Residencies& at,
             Basis basis = Basis::current);
  void choose(const Tenant& tenant, bool chosen);
  bool chosen(const Tenant& tenant) const { return chosen_[tenant]; }

  // The chosen tenants fit on all GPUs of the domain.
  bool fits() const;
  // The same for one of them: only the memory of GPUs counts on which it needs any.
  bool fits(const Tenant& tenant) const;
  // All tenants of the domain would.
  bool everybody_fits() const;
  // It would be in nobody's way if all ran: it needs no memory, and no exclusive tenant uses its GPUs.
  bool disturbs_nobody(const Tenant& tenant) const;

  // The running sets that there would be if all of these took turns: each is begun with the first of those
  // that are left, and those that fit are taken along. Calls `each` with the members of each, and returns how
  // many there are, 64 at most. Nobody is chosen before and after.
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
    Bytes demand;  // as it is now, whatever the basis
  };
  struct GpuRow {
    Bytes usable;
    Bytes load;
    unsigned members = 0;    // chosen tenants there
    unsigned exclusive = 0;  // of them
    Bytes needed_by_all;
    unsigned users = 0;  // all tenants there
    unsigned exclusive_users = 0;
    unsigned unsettled = 0;  // chosen
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
