// SPDX-License-Identifier: Apache-2.0
#include "config/swap_per_unit.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "config/quantities.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

const TypedSizes::Entry* exactly(const std::vector<TypedSizes::Entry>& entries, std::string_view type) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const TypedSizes::Entry& entry) { return same(entry.type, type); });
  return found == entries.end() ? nullptr : &*found;
}

// Writes the size in a form that parse_size() reads.
std::string exact_size(Bytes size) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; size.count > 0 && size.count % 1024 == 0 && unit + 1 < std::size(kUnits); ++unit) size.count /= 1024;
  return std::to_string(size.count) + kUnits[unit];
}

}  // namespace

const TypedSizes::Entry* TypedSizes::find(std::string_view type) const {
  const Entry* entry = exactly(entries, type);
  return entry == nullptr ? exactly(entries, {}) : entry;
}

std::optional<Bytes> TypedSizes::common() const {
  return entries.size() == 1 && entries[0].type.empty() ? entries[0].size : std::nullopt;
}

std::optional<TypedSizes> parse_typed_sizes(std::string_view text, bool with_auto) {
  TypedSizes sizes;
  for (const std::string_view word : split(text, ',')) {
    const std::size_t colon = word.find(':');
    const std::string_view type = colon == word.npos ? std::string_view() : word.substr(0, colon);
    const std::string_view value = colon == word.npos ? word : word.substr(colon + 1);
    if ((colon != word.npos && type.empty()) || type.find_first_of(" \t=()") != type.npos)
      return std::nullopt;
    if (exactly(sizes.entries, type) != nullptr) return std::nullopt;
    std::optional<Bytes> size;
    if (!with_auto || value != "auto") {
      size = parse_size(value);
      if (!size || *size == Bytes{}) return std::nullopt;
    }
    sizes.entries.push_back({std::string(type), size});
  }
  return sizes;
}

std::string format_typed_sizes(const TypedSizes& sizes) {
  std::string text;
  for (const TypedSizes::Entry& entry : sizes.entries)
    text += (text.empty() ? "" : ",") + (entry.type.empty() ? "" : entry.type + ":") +
            (entry.size ? exact_size(*entry.size) : "auto");
  return text;
}

UnitMemory::UnitMemory(TypedSizes per_unit, TypedSizes gpu_memory, std::uint32_t units_per_gpu)
    : per_unit_(std::move(per_unit)),
      gpu_memory_(std::move(gpu_memory)),
      units_per_gpu_(std::max(units_per_gpu, 1u)) {}

std::optional<Bytes> UnitMemory::size_of(const TypedSizes::Entry& entry) const {
  if (entry.size) return entry.size;
  const auto share_of = [this](Bytes gpu) {
    return Bytes{(gpu.count + units_per_gpu_ - 1) / units_per_gpu_};
  };
  if (!entry.type.empty()) {
    const TypedSizes::Entry* gpu = gpu_memory_.find(entry.type);
    return gpu == nullptr ? std::nullopt : std::optional(share_of(*gpu->size));
  }
  std::optional<Bytes> largest;
  for (const TypedSizes::Entry& gpu : gpu_memory_.entries) largest = std::max(largest, gpu.size);
  return largest ? std::optional(share_of(*largest)) : std::nullopt;
}

std::optional<Bytes> UnitMemory::of(std::string_view type) const {
  if (!type.empty()) {
    const TypedSizes::Entry* entry = per_unit_.find(type);
    if (entry == nullptr) return std::nullopt;
    if (entry->type.empty() && !entry->size) return size_of({std::string(type), std::nullopt});
    return size_of(*entry);
  }
  std::optional<Bytes> largest;
  for (const TypedSizes::Entry& entry : per_unit_.entries) largest = std::max(largest, size_of(entry));
  return largest;
}

std::string UnitMemory::problem() const {
  for (const TypedSizes::Entry& entry : per_unit_.entries)
    if (!size_of(entry))
      return "SwapPerUnit=" + (entry.type.empty() ? "" : entry.type + ":") +
             "auto needs the memory of the GPUs: add GpuMemory=" +
             (entry.type.empty() ? "" : entry.type + ":") + "SIZE";
  return {};
}

}  // namespace sharedgpu
