// SPDX-License-Identifier: GPL-2.0-or-later
// The accounting plugin writes into its own entry as Slurm prepares it, and nowhere else.
#include <catch2/catch.hpp>

#include "accounting/pulse.h"
#include "accounting/step.h"
#include "gres/slurm_abi/accounting.h"

namespace {

constexpr int kPosition = 1;
SharedGpuStep step = {};
slurmdb_tres_rec_t records[2] = {};
slurmdb_tres_rec_t* tres_array[2] = {&records[0], &records[1]};

}  // namespace

namespace sharedgpu {
SharedGpuStep* this_step() { return &step; }
void start_pulse(SharedGpuStep&, std::uint32_t) {}
bool pulse_writes(std::uint64_t& value) {
  value = 7;
  return true;
}
}  // namespace sharedgpu

extern "C" {
slurmdb_tres_rec_t** assoc_mgr_tres_array = tres_array;
int assoc_mgr_find_tres_pos(slurmdb_tres_rec_t*, bool) { return kPosition; }
void slurm_info(const char*, ...) {}
int acct_gather_interconnect_p_get_data(acct_gather_data_t* data);
}

namespace {

acct_gather_data_t prepared() {
  acct_gather_data_t entry = {};
  entry.num_reads = entry.num_writes = entry.size_read = entry.size_write = INFINITE64;
  return entry;
}

// One case, in this order: what the plugin has found out about Slurm it keeps.
TEST_CASE(
    "Lease seconds go into an entry that Slurm has prepared, until one is found that is something else") {
  acct_gather_data_t data[] = {prepared(), prepared()};
  CHECK(acct_gather_interconnect_p_get_data(data) == 0);
  CHECK(data[0].size_read == INFINITE64);
  CHECK(data[1].size_read == 7);

  acct_gather_data_t strange[] = {prepared(), prepared()};
  strange[1].num_writes = 3;
  CHECK(acct_gather_interconnect_p_get_data(strange) == 0);
  CHECK(strange[1].size_read == INFINITE64);

  acct_gather_data_t after[] = {prepared(), prepared()};
  CHECK(acct_gather_interconnect_p_get_data(after) == 0);
  CHECK(after[1].size_read == INFINITE64);
}

}  // namespace
