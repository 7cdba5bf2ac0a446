// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_submit/gres.h"

#include <algorithm>
#include <optional>

#include "protocol/split.h"

namespace sharedgpu::job_submit {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Parses a count such as "12" or "2K".
std::optional<std::uint64_t> parse_count(std::string_view text) {
  constexpr std::string_view kSuffixes = "kmgtp";
  unsigned shift = 0;
  if (!text.empty())
    if (const std::size_t power = kSuffixes.find(lower(text.back())); power != kSuffixes.npos) {
      shift = 10 * (static_cast<unsigned>(power) + 1);
      text.remove_suffix(1);
    }
  const auto number = parse_number<std::uint64_t>(text);
  if (!number) return std::nullopt;
  if (*number == 0) return 0;
  return *number > kLargestCount >> shift ? kLargestCount : *number << shift;
}

// Parses one entry, which must not begin with "gres:" or "gres/".
std::optional<TypedCount> parse_entry(std::string_view entry, std::string_view name) {
  entry = entry.substr(0, entry.find('('));  // removes the end of an entry, such as "(S:0-1)" of a node or
                                             // "(IDX:0)" of a job
  if (!entry.starts_with(name)) return std::nullopt;
  entry.remove_prefix(name.size());
  if (entry.empty()) return TypedCount{{}, 1};
  if (entry.front() != ':' && entry.front() != '=')
    return std::nullopt;  // the entry is for another GRES, whose name begins with `name`
  entry.remove_prefix(1);
  if (entry.starts_with("no_consume:")) entry = entry.substr(entry.find(':') + 1);
  const std::size_t end = entry.find_last_of(":=");
  const auto count = parse_count(entry.substr(end == entry.npos ? 0 : end + 1));
  if (end == entry.npos) return count ? TypedCount{{}, *count} : TypedCount{entry, 1};
  return count ? std::optional(TypedCount{entry.substr(0, end), *count}) : std::nullopt;
}

}  // namespace

bool same_type(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::vector<TypedCount> counts_of(std::string_view text, std::string_view name) {
  std::vector<TypedCount> counts;
  if (text.size() > kLongestText || text.find(name) == text.npos) return counts;
  std::uint64_t typed = 0;
  for (std::string_view entry : split(text, ',')) {
    if (entry.starts_with("gres:") || entry.starts_with("gres/")) entry.remove_prefix(5);
    const auto count = parse_entry(entry, name);
    if (!count || count->count == 0) continue;
    const auto same = std::find_if(counts.begin(), counts.end(), [&](const TypedCount& other) {
      return same_type(other.type, count->type);
    });
    if (same == counts.end() && counts.size() == kMostTypes) continue;
    if (!count->type.empty()) typed += count->count;
    if (same == counts.end())
      counts.push_back(*count);
    else
      same->count = std::min(same->count + count->count, kLargestCount);
  }
  for (TypedCount& count : counts)
    if (count.type.empty()) count.count -= std::min(count.count, typed);
  std::erase_if(counts, [](const TypedCount& count) { return count.count == 0; });
  return counts;
}

std::uint64_t sum(const std::vector<TypedCount>& counts) {
  std::uint64_t total = 0;
  for (const TypedCount& count : counts) total += count.count;
  return std::min(total, kLargestCount);
}

bool has_all(const std::vector<TypedCount>& offer, const std::vector<TypedCount>& request) {
  const auto offered = [&](std::string_view type) {
    std::uint64_t total = 0;
    for (const TypedCount& count : offer)
      if (same_type(count.type, type)) total += count.count;
    return total;
  };
  return sum(offer) >= sum(request) &&
         std::all_of(request.begin(), request.end(), [&](const TypedCount& each) {
           return each.type.empty() || offered(each.type) >= each.count;
         });
}

}  // namespace sharedgpu::job_submit
