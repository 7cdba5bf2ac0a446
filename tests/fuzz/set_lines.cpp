// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as changes of settings. The result is an error and no change, or changes of settings
// that `sharedgpu set` may change.
#include "config/settings.h"
#include "input.h"

namespace {

using namespace sharedgpu;

// Compares the settings that a section or `sharedgpu set` may change.
bool is_same(const Settings& a, const Settings& b) {
  const auto is_same_section = [](const Section& one, const Section& other) {
    return one.is_about_the_same(other) && one.values == other.values;
  };
  return a.policy == b.policy && a.quantum == b.quantum && a.max_swap_overhead == b.max_swap_overhead &&
         a.max_wait == b.max_wait && a.shares == b.shares && a.max_request == b.max_request &&
         a.priority == b.priority && a.max_priority == b.max_priority && a.oversize == b.oversize &&
         std::equal(a.sections.begin(), a.sections.end(), b.sections.begin(), b.sections.end(),
                    is_same_section);
}

bool is_of_same_node(const Settings& a, const Settings& b) {
  return a.socket == b.socket && a.state_dir == b.state_dir && a.slurm_user == b.slurm_user &&
         a.admin_users == b.admin_users && a.tenants == b.tenants && a.on_overuse == b.on_overuse &&
         a.max_overuse == b.max_overuse && a.unmanaged == b.unmanaged && a.log_file == b.log_file &&
         a.units_per_gpu == b.units_per_gpu && a.ledger_size == b.ledger_size;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const Settings before;
  Settings changed = before;
  if (!change_settings(text, changed).empty()) {
    fuzz::require(is_same(before, changed) && is_of_same_node(before, changed), "an error changes settings");
    return 0;
  }
  fuzz::require(is_of_same_node(before, changed), "what holds for the node changes");
  Settings again = changed;
  fuzz::require(change_settings(text, again).empty(), "what was a change is none the second time");
  fuzz::require(is_same(changed, again), "the same change, made twice, differs");
  for (const Section& section : changed.sections)
    for (const std::uint32_t number : section.gpus.numbers) settings_of(changed, number, {});
  return 0;
}
