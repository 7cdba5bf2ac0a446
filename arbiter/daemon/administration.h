// SPDX-License-Identifier: Apache-2.0
// What the site and its administrators decide: settings, who administers, which rules hold on which GPU, what
// jobs have a right to, and MPS.
//
// One thread, that of the event loop.
#pragma once

#include <asio/io_context.hpp>
#include <optional>
#include <string>

#include "arbiter/daemon/client.h"
#include "arbiter/daemon/core_runner.h"
#include "arbiter/daemon/mps.h"
#include "arbiter/daemon/system.h"
#include "arbiter/daemon/terms.h"
#include "arbiter/daemon/users.h"
#include "arbiter/ledger/tenants.h"
#include "config/settings.h"

namespace sharedgpu {

class Administration {
 public:
  Administration(asio::io_context& loop, const System& system, const Settings& settings, CoreRunner& core,
                 const Tenants& tenants);

  // Users are looked up once, here.
  void find_administrators();
  // Where the site wants it. After the core has started.
  void start_mps();

  const Settings& settings() const { return settings_; }
  bool is_administrator(uid_t uid) const { return administrators_.has(uid); }

  // The core is told by which rules it schedules on which GPU: at first, and where there are other GPUs.
  void set_rules();
  // The same where jobs of other partitions use a GPU, or are placed there.
  void partitions_may_have_changed();

  // What the tenant has a right to.
  CapSet terms_of(const TenantInfo& tenant) const;
  void set_terms(const TenantInfo& tenant) { core_.handle(terms_of(tenant)); }
  // Of what it asks for and does not get.
  void warn_of_limits(const TenantInfo& tenant) const;
  // The part of the threads, in percent, that a process of the tenant may use of each of the GPUs, or of
  // whichever it chooses itself; zero: it runs without MPS.
  std::uint32_t threads_of(const TenantInfo& tenant, const GpuList& gpus) const;

  // From an administrator. Turns under way go on, and end by the new rules.
  void change_settings(Client& client, const SetLines& lines);

 private:
  std::string unknown_gpu(const GpuNames& names) const;
  void log_settings(const std::string& who) const;

  asio::io_context& loop_;
  const System& system_;
  Settings settings_;
  CoreRunner& core_;
  const Tenants& tenants_;
  Administrators administrators_;
  Partitions partitions_;
  std::optional<Mps> mps_;
};

}  // namespace sharedgpu
