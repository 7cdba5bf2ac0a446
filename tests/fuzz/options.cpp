// SPDX-License-Identifier: Apache-2.0
// Any text as the value of an option of srun: it yields an error and no change, or options that the arbiter
// accepts.
#include "spank/options.h"

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
  RunRequest request;
  const std::string error = set_option(request.options, option, text);
  fuzz::require(error.empty() || is_same(request.options, {}), "an error changes options");
  fuzz::require(is_valid(request), "options that the arbiter refuses");
  return 0;
}
