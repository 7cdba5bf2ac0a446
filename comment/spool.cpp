// SPDX-License-Identifier: GPL-2.0-or-later
#include "comment/spool.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "protocol/replace_file.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// The largest valid time, in seconds. It is so small that the difference of two valid times does not
// overflow.
constexpr std::uint64_t kLatest = std::uint64_t{1} << 62;

std::vector<std::string> names_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string name_of(const SpoolEntry& entry) {
  const std::string node = entry.share.nodes.empty() ? "" : *entry.share.nodes.begin();
  return std::to_string(entry.job) + "-" + std::to_string(entry.seen.begin) + "-" + node + ".json";
}

}  // namespace

std::string format_entry(const SpoolEntry& entry) {
  Json json;
  json["job"] = entry.job;
  json["begin"] = entry.seen.begin;
  json["end"] = entry.seen.end;
  json["share"] = Json::parse(format_summary(entry.share), nullptr, false);
  return json.dump() + "\n";
}

std::optional<SpoolEntry> parse_entry(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  SpoolEntry entry;
  for (const char* name : {"job", "begin", "end"})
    if (!json.contains(name) || !json[name].is_number_unsigned() || json[name].get<std::uint64_t>() > kLatest)
      return std::nullopt;
  if (!json.contains("share") || json["job"].get<std::uint64_t>() > UINT32_MAX) return std::nullopt;
  entry.job = json["job"].get<std::uint32_t>();
  entry.seen = {.begin = json["begin"].get<std::int64_t>(), .end = json["end"].get<std::int64_t>()};
  const std::optional<JobSummary> share = parse_summary(json["share"].dump());
  if (!share || share->nodes.size() != 1 || entry.job == 0) return std::nullopt;
  entry.share = *share;
  return entry;
}

std::vector<Spool::Mark> Spool::marks() const {
  std::vector<Mark> marks;
  for (const std::string& name : names_in(folder_))
    if (const auto job = parse_number<std::uint32_t>(name))
      if (const auto mark = mark_of(*job)) marks.push_back(*mark);
  return marks;
}

std::optional<Spool::Mark> Spool::mark_of(std::uint32_t job) const {
  struct stat info = {};
  if (stat((folder_ + "/" + std::to_string(job)).c_str(), &info) != 0) return std::nullopt;
  return Mark{.job = job, .since = info.st_mtim.tv_sec};
}

void Spool::unmark(std::uint32_t job) const { remove(std::to_string(job)); }

std::vector<std::string> Spool::entries() const {
  std::vector<std::string> names = names_in(folder_);
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".json"); });
  return names;
}

std::optional<SpoolEntry> Spool::read(const std::string& name) const {
  std::ifstream file(folder_ + "/" + name, std::ios::binary);
  return parse_entry(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::string Spool::write(const SpoolEntry& entry) const {
  return replace_file(folder_ + "/" + name_of(entry), format_entry(entry), Durable::yes).message();
}

void Spool::remove(const std::string& name) const { unlink((folder_ + "/" + name).c_str()); }

}  // namespace sharedgpu
