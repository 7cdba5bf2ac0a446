// SPDX-License-Identifier: Apache-2.0
// A status for tests: one GPU of 80 GiB and three jobs. Job 21 holds the lease; jobs 22 and 23 wait.
#pragma once

#include "arbiter/cli/node_status.h"

namespace sharedgpu::cli {

inline std::string name_of_user(std::uint32_t uid) { return uid == 1 ? "ann" : "bob"; }

inline NodeStatus some_status() {
  NodeStatus status;
  status.version = "0.1.0";
  status.policy = "round-robin";
  NodeStatus::Gpu gpu;
  gpu.uuid = "GPU-1";
  gpu.name = "NVIDIA H100";
  gpu.condition = "healthy";
  gpu.policy = "round-robin";
  gpu.capacity = gibibytes(80);
  gpu.footprint = gibibytes(150);
  gpu.resident = gibibytes(50);
  gpu.turn = 7.6;
  gpu.handoff = 0.4;
  gpu.holders = {1};
  gpu.queue = {3, 2};
  gpu.turn_left = 3.25;
  status.gpus = {gpu};
  const auto add = [&](std::uint32_t job, std::uint32_t uid, const char* phase) {
    NodeStatus::Tenant tenant;
    tenant.id = job - 20;
    tenant.name = "job " + std::to_string(job);
    tenant.job = job;
    tenant.uid = uid;
    tenant.phase = phase;
    tenant.wants = true;
    tenant.lease_seconds = 10;
    tenant.waited = 20;
    tenant.footprint = gibibytes(50);
    tenant.gpus = {"GPU-1"};
    status.tenants.push_back(tenant);
  };
  add(21, 1, "running");
  add(22, 2, "out");
  add(23, 2, "out");
  status.tenants[0].lease = true;
  status.tenants[0].resident = gibibytes(50);
  return status;
}

}  // namespace sharedgpu::cli
