// SPDX-License-Identifier: Apache-2.0
// The state of a tenant and the reason why it waits, for its user: in sentences, and as JSON (docs/json.md).
//
// Pure functions.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/cli/node_status.h"

namespace sharedgpu::cli {

// The asking process.
struct Asker {
  std::optional<std::uint32_t> job;  // the asker's Slurm job
  std::optional<std::uint64_t> run;  // the number of the tenant, if the asker was started by `sharedgpu run`
  std::uint32_t uid = 0;
};

// Returns the tenant of the asker's job, or else the tenant of its `sharedgpu run`. If the asker is in
// neither a job nor a run, returns all tenants of its user.
std::vector<const NodeStatus::Tenant*> tenants_of(const NodeStatus& status, const Asker& asker);

struct Standing {
  // Another tenant, as the sentences name it.
  struct Other {
    std::uint64_t id = 0;
    std::string name;  // "job 22"
    std::string user;
    std::string state;
    std::optional<NodeStatus::Overdue> overdue;
    Bytes left_to_evict;    // memory of the tenant that must be evicted before the GPU is free
    Bytes left_to_restore;  // memory of the tenant that must be restored before its turn begins
    std::string text() const { return user.empty() ? name : name + " (" + user + ")"; }
  };
  struct OnGpu {
    std::uint64_t number = 0;
    std::string fault;               // empty: healthy
    std::vector<Other> holders;      // other tenants that hold a lease on the GPU
    std::size_t hidden_holders = 0;  // the number of further holders, which this user may not see
    std::vector<Other> arriving;     // other tenants that have been chosen for a turn, and have no lease yet
    std::vector<Other> moving_out;   // other tenants without a lease whose memory is being evicted
    std::size_t place = 0;           // position in the queue, from 1; zero: the tenant does not wait
    std::size_t waiting = 0;         // length of the queue
    std::optional<double> turn_left;
  };
  NodeStatus::Tenant tenant;
  bool recovering = false;
  std::vector<OnGpu> gpus;
};

using UserName = std::function<std::string(std::uint32_t uid)>;

Standing standing_of(const NodeStatus& status, const NodeStatus::Tenant& tenant, const UserName& name);

// One to four sentences.
std::string sentences(const Standing& standing);

nlohmann::ordered_json json_of(const Standing& standing);

}  // namespace sharedgpu::cli
