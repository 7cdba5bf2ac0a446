// SPDX-License-Identifier: GPL-2.0-or-later
// The accounting plugin writes into its own entries of the array that Slurm prepares, and into no others.
#include <catch2/catch.hpp>
#include <cstring>

#include "accounting/usage_poller.h"
#include "slurm_shared/abi/accounting.h"
#include "slurm_shared/siblings.h"

namespace {

SharedGpuStep step = {};
slurmdb_tres_rec_t records[3] = {};
slurmdb_tres_rec_t* tres_array[3] = {&records[0], &records[1], &records[2]};

}  // namespace

namespace sharedgpu {
void* sibling_function(const char*, const char*, bool) {
  SharedGpuStepFunction* const this_step = [] { return &step; };
  return reinterpret_cast<void*>(this_step);
}
void start_usage_poller(SharedGpuStep&, const OurTres&) {}
bool poller_writes(StepCounts& value) {
  value = {.seconds = 7, .waited = 6, .restored = 8, .evicted = 9};
  return true;
}
}  // namespace sharedgpu

extern "C" {
slurmdb_tres_rec_t** assoc_mgr_tres_array = tres_array;
int assoc_mgr_find_tres_pos(slurmdb_tres_rec_t* tres, bool) {
  return std::strcmp(tres->name, "sharedgpu_lease") == 0 ? 1 : 2;
}
void slurm_info(const char*, ...) {}
int acct_gather_interconnect_p_get_data(acct_gather_data_t* data);
}

namespace {

acct_gather_data_t prepared() {
  acct_gather_data_t entry = {};
  entry.num_reads = entry.num_writes = entry.size_read = entry.size_write = INFINITE64;
  return entry;
}

// This is one test case, since the plugin keeps state: the order of the steps matters.
TEST_CASE(
    "A step's usage goes into the entries that Slurm has prepared, until the plugin finds an entry that is "
    "not prepared") {
  acct_gather_data_t data[] = {prepared(), prepared(), prepared()};
  CHECK(acct_gather_interconnect_p_get_data(data) == 0);
  CHECK(data[0].size_read == INFINITE64);
  CHECK(data[1].size_read == 7);
  CHECK(data[1].size_write == 6);
  CHECK(data[2].size_read == 8);
  CHECK(data[2].size_write == 9);

  acct_gather_data_t strange[] = {prepared(), prepared(), prepared()};
  strange[2].num_writes = 3;
  CHECK(acct_gather_interconnect_p_get_data(strange) == 0);
  CHECK(strange[1].size_read == INFINITE64);

  acct_gather_data_t after[] = {prepared(), prepared(), prepared()};
  CHECK(acct_gather_interconnect_p_get_data(after) == 0);
  CHECK(after[1].size_read == INFINITE64);
}

}  // namespace
