// SPDX-License-Identifier: GPL-2.0-or-later
// Job records in Slurm's database, accessed through slurmdbd. Not thread-safe.
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

  // Returns true if this cluster keeps job records in slurmdbd.
  bool any() const;

  std::vector<JobRecord> runs(std::uint32_t job, std::string& error) override;
  std::string write(std::uint32_t job, const JobRecord& run, CommentField field,
                    const std::string& text) override;
  // Disconnects until the next call, because slurmdbd keeps a thread per connection.
  void disconnect();

 private:
  std::string connect();

  void* connection_ = nullptr;
};

}  // namespace sharedgpu
