// SPDX-License-Identifier: Apache-2.0
// Splits the energy of each GPU among the tenants that held leases on it.
//
// NVML has one energy counter for each GPU. The energy between two readings of this counter counts as
// consumed at constant power. At each moment between the readings, the tenants that hold a lease on the GPU
// share the power equally. The energy of the time in which no tenant holds a lease is unleased. The first
// reading attributes no energy. The first reading after a reload of the driver attributes no energy either,
// because the counter then begins anew. A reading that shows no increase, or an increase that no GPU can
// cause, is ignored. The next plausible reading gives the energy since the last plausible reading.
//
// Pure; not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

struct Energy {
  std::uint64_t millijoules = 0;
  auto operator<=>(const Energy&) const = default;
};

inline double joules(Energy energy) { return static_cast<double>(energy.millijoules) / 1000; }

class EnergyBook {
 public:
  // A tenant, and a GPU that it has used.
  using Key = std::pair<TenantId, GpuUuid>;

  // Sets the energy of `key` to a value read from the ledger.
  void carry(const Key& key, Energy energy);
  // grant() notes that a lease of the tenant on the GPU begins, and release() notes that one ends. A tenant
  // whose steps hold several leases on the GPU gets one share of the power.
  void grant(const Key& key, Nanoseconds at);
  void release(const Key& key, Nanoseconds at);
  // Takes a reading of the GPU's counter.
  void read(const GpuUuid& gpu, Energy counter, Nanoseconds at);
  // Returns the energies that have changed; the caller writes them to the ledger. Returns nothing if the last
  // check for changes was less than 15 seconds ago. So a crash of the arbiter or of the host loses the energy
  // of about 15 seconds.
  std::vector<std::pair<Key, Energy>> take_news(Nanoseconds now);
  // Makes the next take_news() return all changed energies. Call it before the arbiter ends.
  void hasten() { due_ = true; }
  void forget(TenantId tenant);

  Energy of(const Key& key) const;
  // The tenant's energy on each GPU.
  std::map<GpuUuid, Energy> of(TenantId tenant) const;
  // The GPU's unleased energy since this object was created.
  Energy unleased(const GpuUuid& gpu) const;
  std::map<Key, Energy> all() const;

 private:
  struct Meter {
    std::optional<Energy> reading;
    Nanoseconds read{};                      // the time of `reading`
    Nanoseconds counted{};                   // `shares` are counted up to this time
    std::map<TenantId, unsigned> holders;    // each tenant's number of open leases on the GPU
    std::map<TenantId, Nanoseconds> shares;  // each tenant's part of the time from `read` to `counted`
    double unleased = 0;                     // millijoules
  };
  static void count(Meter& meter, Nanoseconds at);

  std::map<GpuUuid, Meter> meters_;
  std::map<Key, double> energies_;  // millijoules
  std::map<Key, Energy> written_;   // as last returned by take_news(), or read from the ledger
  Nanoseconds told_{};
  bool due_ = false;
};

}  // namespace sharedgpu
