// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as a list of nodes. The result is no list, or a list whose first name is also a valid
// list of one node.
#include "spank/job_nodes.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  const auto nodes = parse_nodes(fuzz::text_of(data, size));
  if (!nodes) return 0;
  fuzz::require(nodes->count > 0, "a list without nodes");
  fuzz::require(!nodes->first.starts_with('-'), "a name that reads as an option");
  const auto first = parse_nodes(nodes->first);
  fuzz::require(first && first->first == nodes->first && first->count == 1, "a name reads otherwise");
  return 0;
}
