// SPDX-License-Identifier: Apache-2.0
// The fields of the arbiter's status that `top` and `status --me` need, as C++ values.
//
// Sizes are in bytes, times in seconds. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu::cli {

struct NodeStatus {
  struct Gpu {
    std::uint64_t number = 0;
    std::string uuid;
    std::string name;
    std::string condition;
    std::string fault;
    bool drained = false;
    std::string policy;
    Bytes capacity;
    Bytes footprint;
    Bytes resident;
    std::optional<Bytes> unmanaged;
    double turn = 0;                     // length of turns
    double handoff = 0;                  // mean duration of recent handoffs; zero: there was none yet
    std::vector<std::uint64_t> holders;  // zero: a tenant that the asking user may not see
    std::vector<std::uint64_t> queue;    // tenants that wait, in the order in which they are served; zero: as
                                         // in `holders`
    std::optional<double> turn_left;     // none if no tenant waits, or no turn has begun
    std::size_t hidden_holders() const {
      return static_cast<std::size_t>(std::count(holders.begin(), holders.end(), 0u));
    }
  };

  struct Overdue {
    double seconds = 0;
    std::string waits_for;
  };

  struct Tenant {
    std::uint64_t id = 0;
    std::string name;
    std::optional<std::uint32_t> job;
    std::uint32_t uid = 0;
    std::uint64_t units = 0;
    std::int64_t priority = 0;
    std::string phase;  // out, entering, running or leaving
    bool lease = false;
    bool wants = false;
    bool stopped = false;
    bool stuck = false;
    double lease_seconds = 0;
    double waited = 0;
    double moving = 0;  // total time from each choice of the tenant for a turn to the opening of its gates,
                        // plus the time in which memory that it was ordered to evict was still on a GPU
    double leaving = 0;
    std::optional<Overdue> overdue;
    std::uint64_t handoffs = 0;
    Bytes evicted;
    Bytes restored;
    Bytes to_evict;
    Bytes footprint;
    Bytes resident;
    Bytes host;
    Bytes away;
    std::uint64_t nodes = 1;        // the job's number of nodes if its turns begin on all of them together
    std::vector<std::string> gpus;  // UUIDs of the GPUs that the tenant uses, or else is placed on

    // "running", "waiting", "idle", "entering", "leaving" or "stopped"
    std::string state() const;
  };

  std::string version;
  std::string policy;
  bool recovering = false;
  std::vector<Gpu> gpus;
  std::vector<Tenant> tenants;

  // Returns null if there is no tenant with this number.
  const Tenant* find(std::uint64_t id) const;
};

// Parses the text of `sharedgpu status --json`. Returns an empty string, or an error message.
std::string parse_status(const std::string& text, NodeStatus& status);

// Names `count` jobs that the asking user may not see.
inline std::string hidden_jobs(std::size_t count) {
  return count == 1 ? "another job" : std::to_string(count) + " other jobs";
}

}  // namespace sharedgpu::cli
