// SPDX-License-Identifier: GPL-2.0-or-later
// Reads the host memory of a unit (SwapPerUnit= and related keys) from sharedgpu.conf on slurmctld's host.
#pragma once

#include <ctime>
#include <mutex>
#include <optional>
#include <string>

#include "config/swap_per_unit.h"

namespace sharedgpu::job_submit {

// Any thread.
class Configuration {
 public:
  // Returns the host memory of units; nullopt if the plugin adds no host memory to jobs. Reads sharedgpu.conf
  // again if Slurm has read its own configuration since the last call (`slurm_read_at`). Reads the file in
  // the folder of slurm.conf (`slurm_conf`), or the file in the default place if that folder has none. After
  // each reading, logs the reason if the plugin adds no memory. If the file has an error, logs the error and
  // keeps the earlier values.
  std::optional<UnitMemory> unit_memory(const char* slurm_conf, std::time_t slurm_read_at);

 private:
  void read(const std::string& path);

  std::mutex mutex_;
  std::optional<std::time_t> read_at_;     // guarded by mutex_
  std::optional<UnitMemory> unit_memory_;  // guarded by mutex_
};

}  // namespace sharedgpu::job_submit
