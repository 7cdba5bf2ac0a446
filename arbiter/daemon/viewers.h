// SPDX-License-Identifier: Apache-2.0
// Decides whether a user sees the tenants of all users, or only its own (PrivateData=). Administrators,
// StatusUsers and the arbiter's own user see all.
//
// With PrivateData=slurm, the arbiter asks Slurm for its PrivateData at the start of the arbiter, and later
// when the answer is needed and older than five minutes. If Slurm does not answer, the arbiter may ask again
// after ten seconds. Until Slurm has answered for the first time, users see only their own tenants. If
// Tenants=any and the arbiter knows no job of Slurm, the arbiter does not ask Slurm, and users see all
// tenants.
//
// Event-loop thread only.
#pragma once

#include <sys/types.h>

#include <optional>

#include "arbiter/daemon/administration.h"
#include "arbiter/daemon/scontrol.h"
#include "arbiter/daemon/system.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

// Returns true if a value of Slurm's PrivateData hides the jobs of other users.
bool hides_jobs(std::string_view private_data);

class Viewers {
 public:
  Viewers(const System& system, const Administration& administration, const Tenants& tenants,
          Scontrol& scontrol)
      : system_(system), administration_(administration), tenants_(tenants), scontrol_(scontrol) {}

  // Returns `user` if this user sees only its own tenants; nullopt if it sees all tenants.
  std::optional<uid_t> limit_for(uid_t user);
  // Asks Slurm in advance. Call when the arbiter has started.
  void start() { jobs_are_private(); }

 private:
  bool jobs_are_private();
  bool serves_slurm() const;
  void ask_slurm();

  const System& system_;
  const Administration& administration_;
  const Tenants& tenants_;
  Scontrol& scontrol_;
  std::optional<bool> answer_;  // Slurm's last answer; true: jobs are private
  Nanoseconds ask_at_{};        // when Slurm may be asked again
};

}  // namespace sharedgpu
