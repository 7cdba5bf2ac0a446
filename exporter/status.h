// SPDX-License-Identifier: Apache-2.0
// Reads the fields of an arbiter's status (docs/status-json.md) that become metrics. Skips the other fields
// without building a tree of values, since the status of 1,000 tenants has 75,000 values.
//
// Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sharedgpu::exporter {

// nullopt: the arbiter does not know the value, or an older arbiter lacks the field. A flag is 0 or 1.
using Value = std::optional<double>;

// Texts are empty if the arbiter sends null. Fields without a comment have the name that they have in the
// status.
struct Status {
  struct Gpu {
    std::string number, uuid, name, policy, condition;
    Value total_bytes, capacity_bytes, usable_bytes, footprint_bytes, resident_bytes, context_bytes,
        host_bytes, unmanaged_bytes, units, utilization, energy_joules, unleased_energy_joules, drained,
        contended, quantum_seconds, handoff_seconds;
    std::vector<std::string> holders;
  };
  struct Energy {
    std::string gpu;  // UUID
    Value joules;
  };
  struct Tenant {
    Value uid;
    std::string id, name, job, partition, qos;
    Value lease_seconds, waited_seconds, overuse_seconds, handoffs, evicted_bytes, restored_bytes,
        deadline_seconds, deadlines_met, deadlines_missed, units, footprint_bytes, resident_bytes, host_bytes,
        away_bytes, host_budget_bytes, lease, wants, stuck;
    Value overdue_seconds;  // `seconds` of `overdue`
    // Fields of `exchanges`; nullopt until the tenant has had an exchange or a slowed kernel.
    Value exchange_evicted_bytes, exchange_restored_bytes, exchange_moving_seconds, exchange_waited_seconds,
        exchange_slowed_seconds;
    std::vector<std::string> gpus, placed;  // UUIDs
    std::vector<Energy> energy;
  };
  std::string version;
  Value recovering;
  std::vector<Gpu> gpus;
  std::vector<Tenant> tenants;
};

// Throws std::runtime_error if the text is not the status of an arbiter of this or an older version, or if a
// field has the wrong type.
Status read_status(const std::string& text);

}  // namespace sharedgpu::exporter
