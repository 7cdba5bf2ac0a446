// SPDX-License-Identifier: GPL-2.0-or-later
#include "gres/shares.h"

#include <algorithm>
#include <cstdio>

#include "config/node_gpus.h"

namespace sharedgpu::gres {
namespace {

constexpr std::string_view kBegin = "sharedgpu\n";  // first line of the data that slurmd sends
constexpr std::string_view kTyped = "type ";        // begins a line about units of a type

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

// Matches types as Slurm does for gpu: slurm.conf may say h200 for nvidia_h200.
bool has_type(const Gpu& gpu, std::string_view type) {
  return std::search(gpu.type.begin(), gpu.type.end(), type.begin(), type.end(),
                     [](char x, char y) { return lower(x) == lower(y); }) != gpu.type.end();
}

bool contains(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

std::string join(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& entry : list) text += (text.empty() ? "" : ", ") + entry;
  return text;
}

std::string describe(const std::vector<Gpu>& gpus) {
  std::vector<std::string> words;
  for (const Gpu& gpu : gpus) words.push_back(gpu.file + (gpu.type.empty() ? "" : " (" + gpu.type + ")"));
  return join(words);
}

std::string name_of(std::string_view type) {
  return type.empty() ? "sharedgpu" : "sharedgpu:" + std::string(type);
}

std::vector<std::string> stated_files(const std::vector<Record>& records, std::string_view type) {
  std::vector<std::string> files;
  for (const Record& record : records)
    if (same(record.type, type)) files.insert(files.end(), record.files.begin(), record.files.end());
  return files;
}

// Returns the longest of the records' types that are contained in the GPU's model name.
std::string_view type_of(const Gpu& gpu, const std::vector<Record>& records) {
  std::string_view best;
  for (const Record& record : records)
    if (record.type.size() > best.size() && has_type(gpu, record.type)) best = record.type;
  return best;
}

std::size_t count_types(const std::vector<Record>& records) {
  std::vector<std::string_view> types;
  for (const Record& record : records)
    if (std::none_of(types.begin(), types.end(), [&](auto type) { return same(type, record.type); }))
      types.push_back(record.type);
  return types.size();
}

// Returns the files of the GPUs of a record without File=. `free` has the GPUs that neither File= nor another
// GRES lists. Sets `refusal` if there are free GPUs, and none of them suits the record.
std::vector<std::string> matching_files(const Record& record, const std::vector<Record>& records,
                                        const std::vector<Gpu>& free, std::string& refusal) {
  std::vector<std::string> files;
  const bool alone = count_types(records) < 2;
  const bool known = std::any_of(free.begin(), free.end(), [](const Gpu& gpu) { return !gpu.type.empty(); });
  for (const Gpu& gpu : free)
    if (record.type.empty() || (known ? same(type_of(gpu, records), record.type) : alone))
      files.push_back(gpu.file);
  if (files.empty() && !free.empty())
    refusal = "slurm.conf has units " + name_of(record.type) + ", but of the GPUs found, " + describe(free) +
              (known ? ", none has this model" : ", the models are not known") +
              "; correct slurm.conf, or name them in gres.conf: Name=sharedgpu Type=" + record.type +
              " File=/dev/nvidia...";
  return files;
}

// Warns if gres.conf states fewer units than slurm.conf. In this case Slurm makes a second record, with the
// remaining units.
void compare_counts(const std::vector<Record>& records, std::vector<std::string>& warnings) {
  for (std::size_t i = 0; i + 1 < records.size(); ++i) {
    const Record& stated = records[i];
    const Record& rest = records[i + 1];
    if (!stated.files.empty() || stated.units < 2 || !rest.files.empty() || !same(stated.type, rest.type))
      continue;
    warnings.push_back("gres.conf has " + std::to_string(stated.units) + " units " + name_of(stated.type) +
                       " and slurm.conf " + std::to_string(stated.units + rest.units) +
                       "; Slurm uses the number in slurm.conf: correct gres.conf");
  }
}

std::string too_many(std::uint64_t units, std::size_t gpus) {
  return "slurm.conf has " + std::to_string(units) + " units sharedgpu, but Slurm can number " +
         std::to_string(kMostUnitsPerNode) + " at most on a node; lower UnitsPerGpu in sharedgpu.conf" +
         (gpus == 0 ? "" : " to " + std::to_string(kMostUnitsPerNode / gpus) + " or less") +
         ", and Gres= in slurm.conf with it";
}

bool read_device(const std::string& line, std::vector<Device>& devices) {
  unsigned long first = 0;
  unsigned long units = 0;
  unsigned major = 0;
  unsigned minor = 0;
  int path = 0;
  if (std::sscanf(line.c_str(), "%lu %lu %u %u %n", &first, &units, &major, &minor, &path) != 4 || path == 0)
    return false;
  devices.push_back({first, units, major, minor, line.substr(static_cast<std::size_t>(path))});
  return true;
}

bool read_typed(const std::string& line, std::vector<TypedUnits>& typed) {
  unsigned long first = 0;
  unsigned long units = 0;
  int type = 0;
  if (std::sscanf(line.c_str(), "%lu %lu %n", &first, &units, &type) != 2 || type == 0) return false;
  typed.push_back({first, units, line.substr(static_cast<std::size_t>(type))});
  return !typed.back().type.empty();
}

}  // namespace

Shares share_gpus(const std::vector<Record>& records, const std::vector<Gpu>& found,
                  const std::vector<std::string>& taken) {
  Shares result;
  std::vector<std::string> stated;
  for (const Record& record : records)
    for (const std::string& file : record.files) {
      if (contains(taken, file))
        result.refusal =
            "gres.conf offers " + file + " both as sharedgpu and as another GRES: it can be only one";
      if (contains(stated, file)) result.refusal = "gres.conf offers " + file + " twice as sharedgpu";
      stated.push_back(file);
    }
  std::vector<Gpu> free;
  for (const Gpu& gpu : found)
    if (!contains(taken, gpu.file) && !contains(stated, gpu.file)) free.push_back(gpu);
  const bool all_taken = !found.empty() && free.empty();
  std::uint64_t unit = 0;
  for (const Record& record : records) {
    Share share = {.type = record.type, .first_unit = unit, .units = record.units, .files = {}};
    unit += record.units;
    share.files = stated_files(records, record.type);
    if (share.files.empty() && all_taken && record.units > 0)
      result.refusal = "slurm.conf has " + std::to_string(record.units) + " units " + name_of(record.type) +
                       ", but other entries already offer all GPUs of this node: " + describe(found);
    else if (share.files.empty() && record.units > 0)
      share.files = matching_files(record, records, free, result.refusal);
    result.list.push_back(share);
  }
  if (unit > kMostUnitsPerNode) result.refusal = too_many(unit, free.size() + stated.size());
  compare_counts(records, result.warnings);
  return result;
}

std::vector<Share> sum_by_type(const std::vector<Share>& shares) {
  std::vector<Share> sums;
  for (const Share& share : shares) {
    auto place =
        std::find_if(sums.begin(), sums.end(), [&](const Share& sum) { return same(sum.type, share.type); });
    if (place == sums.end())
      sums.push_back(share);
    else
      place->units += share.units;
  }
  return sums;
}

std::string write_units(const NodeUnits& units) {
  std::string text(kBegin);
  for (const TypedUnits& typed : units.typed)
    text += std::string(kTyped) + std::to_string(typed.first_unit) + " " + std::to_string(typed.units) + " " +
            typed.type + "\n";
  for (const Device& device : units.devices)
    text += std::to_string(device.first_unit) + " " + std::to_string(device.units) + " " +
            std::to_string(device.major) + " " + std::to_string(device.minor) + " " + device.file + "\n";
  return text;
}

bool begins_with_units(std::string_view packed) {
  return packed.size() >= 4 && packed.substr(4).starts_with(kBegin);
}

bool read_units(std::string_view text, NodeUnits& units) {
  if (!text.starts_with(kBegin)) return false;
  text.remove_prefix(kBegin.size());
  NodeUnits result;
  while (!text.empty()) {
    std::size_t end = text.find('\n');
    if (end == text.npos) return false;
    const std::string line(text.substr(0, end));
    text.remove_prefix(end + 1);
    const bool is_read = line.starts_with(kTyped) ? read_typed(line.substr(kTyped.size()), result.typed)
                                                  : read_device(line, result.devices);
    if (!is_read) return false;
  }
  units = result;
  return true;
}

}  // namespace sharedgpu::gres
