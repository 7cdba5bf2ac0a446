// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/viewers.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

TEST_CASE("Slurm hides the jobs of other users where PrivateData has the word jobs") {
  for (const char* text : {"jobs", "accounts,jobs,usage", "all"}) CHECK(hides_jobs(text));
  for (const char* text : {"none", "", "usage", "accounts,reservations", "jobsx"})
    CHECK_FALSE(hides_jobs(text));
}

}  // namespace
}  // namespace sharedgpu
