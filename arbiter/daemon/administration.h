// SPDX-License-Identifier: Apache-2.0
// Applies the settings of the site and of its administrators. Sets the rules of each GPU (Rules) and the
// limits of each tenant, runs MPS, and knows the users that are administrators.
//
// Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <map>
#include <optional>
#include <string>

#include "arbiter/daemon/client.h"
#include "arbiter/daemon/complaints.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/mps.h"
#include "arbiter/daemon/system.h"
#include "arbiter/daemon/terms.h"
#include "arbiter/daemon/users.h"
#include "arbiter/ledger/tenants.h"
#include "config/overrides.h"
#include "config/settings.h"

namespace sharedgpu {

// The bounds on the device memory that the arbiter hands out on a GPU.
struct DeviceMemory {
  Amount limit;    // DeviceMemoryLimit=
  Amount reserve;  // MemoryReserve=
};

class Administration {
 public:
  Administration(asio::io_context& loop, const System& system, const Settings& settings, CoreRunner& core,
                 const Tenants& tenants, Complaints& complaints);

  // Looks up the uids of the administrators. Before this call, only root is an administrator.
  void find_administrators();
  // Runs MPS if Mps=yes. Call after the core has started.
  void start_mps();

  // The settings that apply: those of the file, with the changes of administrators (`sharedgpu set`).
  const Settings& settings() const { return settings_; }
  const Overrides& overrides() const { return overrides_; }
  bool is_administrator(uid_t uid) const { return administrators_.has(uid); }
  bool sees_all_tenants(uid_t uid) const { return administrators_.sees_all(uid); }

  // Passes the rules of each GPU to the core. Call whenever a GPU is added.
  void set_rules();
  // Passes the rules to the core again if a GPU serves jobs of other partitions than before.
  void partitions_may_have_changed();

  // The limits and entitlements of a tenant.
  CapSet terms_of(const TenantInfo& tenant) const;
  void set_terms(const TenantInfo& tenant) { core_.handle(terms_of(tenant)); }
  // Call when a session of the tenant has attached to a GPU, because the tenant's limits may depend on the
  // GPU.
  void gpu_may_have_changed(const TenantInfo& tenant);
  // Logs each request of the tenant that exceeds what the site allows.
  void warn_of_limits(const TenantInfo& tenant) const;
  // The percentage of a GPU's threads that a starting process of the tenant may use. The smallest percentage
  // of all `gpus` counts; if the list is empty, the smallest of all GPUs of the node. Zero: the process runs
  // without MPS.
  std::uint32_t threads_of(const TenantInfo& tenant, const GpuList& gpus) const;

  // The memory of the tenant's largest GPU if the host memory that SwapPerUnit= gives to a unit depends on
  // this memory; else zero.
  Bytes largest_gpu_of(TenantId tenant) const;
  // The total memory of `gpus`, or of all GPUs of the node if the list is empty.
  Bytes memory_of(const GpuList& gpus) const;

  // Returns the first of `names` that names no GPU of the arbiter; empty if each name is known.
  std::string unknown_gpu(const GpuNames& names) const;

  // The bounds that apply to the GPU at present.
  DeviceMemory device_memory_of(const GpuUuid& gpu) const;
  // Call when a session has ended. A reload may have deferred a smaller capacity until a GPU has no sessions.
  // Sets this capacity if no session is left.
  void session_ended();

  // Applies the live keys (keys that a running arbiter can change) of `file`, the settings that were read
  // again. Changes by administrators (`sharedgpu set`) keep their precedence. Keys that need a restart keep
  // the values of the arbiter's start. Returns the keys whose values in the file have changed. Running turns
  // continue. A GPU with sessions gets a larger capacity at once, and a smaller one when the sessions have
  // ended.
  Difference reload(const Settings& file);
  // Returns true if a GPU gets a smaller capacity when its sessions have ended.
  bool capacity_is_due() const { return !earlier_memory_.empty(); }

  // Handles a request to change settings. The sender must be an administrator. Current turns continue. The
  // new rules decide when these turns end.
  void change_settings(Client& client, const SetLines& lines);

 private:
  void apply_settings();
  void set_capacities();
  bool is_in_file(const Section& section) const;
  void log_settings(const std::string& who) const;

  asio::io_context& loop_;
  const System& system_;
  Settings file_;  // the file's live keys as last read, and its other keys as read when the arbiter started
  Overrides overrides_;
  Settings settings_;  // the settings of the file, changed by the overrides
  CoreRunner& core_;
  const Tenants& tenants_;
  Complaints& complaints_;
  Administrators administrators_;
  Partitions partitions_;
  std::map<GpuUuid, DeviceMemory> earlier_memory_;  // the old bounds, for GPUs that get the new bounds later
  std::optional<Mps> mps_;
};

}  // namespace sharedgpu
