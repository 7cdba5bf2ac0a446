// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs in Slurm's database, by way of slurmdbd. One thread at a time.
#pragma once

#include "comment/retry_queue.h"

namespace sharedgpu {

class SlurmdbRecords : public JobRecords {
 public:
  // Reads slurm.conf, as Slurm's commands do.
  SlurmdbRecords();
  ~SlurmdbRecords() override;
  SlurmdbRecords(const SlurmdbRecords&) = delete;
  SlurmdbRecords& operator=(const SlurmdbRecords&) = delete;

  // Whether this cluster keeps jobs in a database at all.
  bool any() const;

  std::vector<JobRecord> runs(std::uint32_t job, std::string& error) override;
  std::string write(std::uint32_t job, const JobRecord& run, const std::string& comment) override;
  // Until it is needed again: slurmdbd keeps a thread for each.
  void disconnect();

 private:
  std::string connect();

  void* connection_ = nullptr;
};

}  // namespace sharedgpu
