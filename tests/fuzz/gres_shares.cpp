// SPDX-License-Identifier: Apache-2.0
// Uses arbitrary records of gres.conf and arbitrary GPUs of a node. Units must have consecutive numbers, and
// no offered unit may open a device of another GRES or type.
#include <map>

#include "config/node_gpus.h"
#include "gres/shares.h"
#include "input.h"

namespace {

using namespace sharedgpu;

constexpr const char* kTypes[] = {"", "h200", "H200", "h20", "nvidia_h200", "a100"};

std::string file(fuzz::Input& in) { return "/dev/nvidia" + std::to_string(in.below(6)); }

std::vector<gres::Record> records(fuzz::Input& in) {
  std::vector<gres::Record> list(in.below(5));
  for (gres::Record& record : list) {
    record.type = in.one_of(kTypes);
    record.units = in.one_in(8) ? in.byte() * 16u : in.below(9);
    for (unsigned files = in.below(3); files > 0; --files) record.files.push_back(file(in));
  }
  return list;
}

std::vector<gres::Gpu> gpus(fuzz::Input& in) {
  std::vector<gres::Gpu> list(in.below(5));
  for (std::size_t i = 0; i < list.size(); ++i)
    list[i] = {.file = "/dev/nvidia" + std::to_string(i), .type = in.one_of(kTypes)};
  return list;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input in(data, size);
  const auto stated = records(in);
  const auto found = gpus(in);
  std::vector<std::string> taken;
  for (unsigned files = in.below(3); files > 0; --files) taken.push_back(file(in));
  const gres::Shares shares = gres::share_gpus(stated, found, taken);
  fuzz::require(shares.list.size() == stated.size(), "not one share a record");
  std::uint64_t unit = 0;
  std::map<std::string, std::string> types;  // the type of each file
  for (const gres::Share& share : shares.list) {
    fuzz::require(share.first_unit == unit, "units are not numbered one after another");
    unit += share.units;
    if (!shares.refusal.empty()) continue;
    for (const std::string& each : share.files) {
      fuzz::require(std::find(taken.begin(), taken.end(), each) == taken.end(),
                    "another GRES has the device");
      const auto [entry, is_new] = types.emplace(each, lower(share.type));
      fuzz::require(is_new || share.units == 0 || entry->second == lower(share.type) ||
                        entry->second.empty() || share.type.empty(),
                    "two types have the device");
    }
  }
  fuzz::require(unit <= kMostUnitsPerNode || !shares.refusal.empty(), "more units than Slurm can number");
  std::uint64_t sum = 0;
  for (const gres::Share& share : gres::sum_by_type(shares.list)) sum += share.units;
  fuzz::require(sum == unit, "units are lost in the sums");
  return 0;
}
