// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as the value of an option of srun or `sharedgpu run`. The result is an error and no
// change, or options that the arbiter accepts.
#include "config/job_options.h"

#include "arbiter/daemon/validity.h"
#include "input.h"

namespace {

bool is_same(const sharedgpu::JobOptions& a, const sharedgpu::JobOptions& b) {
  return a.memory == b.memory && a.units == b.units && a.share_request == b.share_request &&
         a.share_limit == b.share_limit && a.priority == b.priority && a.deadline == b.deadline &&
         a.backend == b.backend && a.backend_given == b.backend_given && a.gpus == b.gpus;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  fuzz::Input in(data, size);
  const std::size_t option = in.below(kOptionCount);
  const std::string_view text = fuzz::text_of(data, size).substr(std::min<std::size_t>(size, 1));
  GivenOptions given;
  const std::string error = set_option(given, option, text);
  fuzz::require(error.empty() || is_same(given.job, {}), "an error changes options");
  fuzz::require(is_valid(RunRequest{.options = given.job}), "options that the arbiter refuses");
  return 0;
}
