// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as the saved list of nodes whose arbiters have sent messages about gangs. Saving and
// parsing the list again must yield the same list.
#include "arbiter/gang/heard_nodes.h"

#include <string>

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  using namespace std::chrono_literals;
  HeardNodes read(1h), again(1h);
  read.restore(fuzz::text_of(data, size), "boot", 2h);
  const std::string text = read.text("boot", 2h);
  again.restore(text, "boot", 2h);
  fuzz::require(again.text("boot", 2h) == text, "nodes that are kept are restored otherwise");
  return 0;
}
