// SPDX-License-Identifier: GPL-2.0-or-later
#include "comment/comment.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace sharedgpu {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr int kVersion = 1;
constexpr std::string_view kName = "sharedgpu";
// The maximum number of bytes of a comment. The database's column has 65535 bytes; longer text is truncated.
constexpr std::size_t kMost = 60'000;

// The beginning and the end of a part of a text.
struct Place {
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::size_t skip_blanks(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
}

// Returns the position after the JSON string that begins at `at`.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

// Returns the position after the JSON value that begins at `at`. Only counts brackets and skips strings; does
// not parse the value.
std::size_t end_of_value(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = end_of_string(text, at);
    } else {
      if (c == '{' || c == '[') ++depth;
      if (depth == 0 && (c == ',' || c == '}' || c == ']')) return at;
      if (c == '}' || c == ']') --depth;
      ++at;
      if (depth != 0 || (c != '}' && c != ']')) continue;
    }
    if (depth == 0) return at;
  }
  return at;
}

// The place of the value of member kName in the JSON object that begins at `begin`.
std::optional<Place> find_member(std::string_view text, std::size_t begin) {
  std::size_t at = skip_blanks(text, begin + 1);
  while (at < text.size() && text[at] == '"') {
    const std::size_t key_end = end_of_string(text, at);
    const std::string_view key = text.substr(at + 1, key_end - at - 2);
    const std::size_t value = skip_blanks(text, skip_blanks(text, key_end) + 1);
    const std::size_t end = end_of_value(text, value);
    if (key == kName) return Place{.begin = value, .end = end};
    at = skip_blanks(text, skip_blanks(text, end) + 1);
  }
  return std::nullopt;
}

// Returns true if the whole text is a JSON object. Refuses a zero byte, which the parser would take for the
// end of the text.
bool is_object(std::string_view text) {
  return text.starts_with('{') && text.find('\0') == text.npos && Json::accept(text);
}

// Returns true if the object has a version, as every summary does.
bool has_version(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  return json.is_object() && json.contains("version");
}

// Returns the JSON object that contains the summary: the whole comment if it is an object, otherwise the
// object that follows the comment's other text.
std::optional<Place> find_object(std::string_view text) {
  const std::size_t first = skip_blanks(text, 0);
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  if (last != text.npos && is_object(text.substr(first, last + 1 - first)))
    return Place{.begin = first, .end = last + 1};
  const std::string ours = "{\"" + std::string(kName) + "\":";
  for (std::size_t at = text.find(ours); at != text.npos; at = text.find(ours, at + 1)) {
    const std::size_t end = end_of_value(text, at);
    if (!is_object(text.substr(at, end - at))) continue;
    const std::optional<Place> member = find_member(text, at);
    if (member && has_version(text.substr(member->begin, member->end - member->begin)))
      return Place{.begin = at, .end = end};
  }
  return std::nullopt;
}

std::string replaced(std::string_view text, Place place, std::string_view by) {
  std::string result(text.substr(0, place.begin));
  result += by;
  result += text.substr(place.end);
  return result;
}

double seconds(milliseconds time) { return static_cast<double>(time.count()) / 1000; }

// Reads the fields of a summary. The summary is invalid if a field is missing or has the wrong type.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  Reader& number(const char* name, std::uint64_t& value) {
    const auto field = json_.find(name);
    good_ = good_ && field != json_.end() && field->is_number_unsigned();
    if (good_) value = field->get<std::uint64_t>();
    return *this;
  }
  Reader& time(const char* name, milliseconds& value) {
    constexpr double kLongest = 1e12;  // maximum in seconds; the sum of two such times does not overflow
    const auto field = json_.find(name);
    good_ = good_ && field != json_.end() && field->is_number();
    const double told = good_ ? field->get<double>() : 0;
    good_ = good_ && told >= 0 && told < kLongest;
    if (good_) value = milliseconds(std::llround(told * 1000));
    return *this;
  }
  Reader& words(const char* name, std::set<std::string>& values) {
    const auto field = json_.find(name);
    good_ = good_ && field != json_.end() && field->is_array();
    if (!good_) return *this;
    for (const Json& word : *field) {
      good_ = good_ && word.is_string();
      if (good_) values.insert(word.get<std::string>());
    }
    return *this;
  }
  // Reads the list of lost GPUs. The field is missing if no GPU was lost, and in summaries by earlier
  // versions of sharedgpu.
  Reader& losses(const char* name, std::set<SummaryLoss>& values) {
    const auto field = json_.find(name);
    if (field == json_.end()) return *this;
    good_ = good_ && field->is_array();
    if (!good_) return *this;
    for (const Json& loss : *field) {
      SummaryLoss value;
      for (const auto& [key, text] : {std::pair("node", &value.node), std::pair("gpu", &value.gpu),
                                      std::pair("reason", &value.reason)}) {
        good_ = good_ && loss.is_object() && loss.contains(key) && loss[key].is_string();
        if (good_) *text = loss[key].get<std::string>();
      }
      if (good_) values.insert(value);
    }
    return *this;
  }
  bool good() const { return good_; }

 private:
  const Json& json_;
  bool good_ = true;
};

std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
  return a > std::numeric_limits<std::uint64_t>::max() - b ? std::numeric_limits<std::uint64_t>::max()
                                                           : a + b;
}

JobSummary joined(JobSummary a, const JobSummary& b) {
  a.nodes.insert(b.nodes.begin(), b.nodes.end());
  a.lease += b.lease;
  a.waited += b.waited;
  a.overuse += b.overuse;
  a.handoffs = sum(a.handoffs, b.handoffs);
  a.restored = sum(a.restored, b.restored);
  a.evicted = sum(a.evicted, b.evicted);
  a.footprint = std::max(a.footprint, b.footprint);
  a.resident = std::max(a.resident, b.resident);
  a.backends.insert(b.backends.begin(), b.backends.end());
  a.gpus.insert(b.gpus.begin(), b.gpus.end());
  a.gpu_losses.insert(b.gpu_losses.begin(), b.gpu_losses.end());
  return a;
}

}  // namespace

std::string format_summary(const JobSummary& summary) {
  Json json;
  json["version"] = kVersion;
  json["nodes"] = summary.nodes;
  json["lease_seconds"] = seconds(summary.lease);
  json["waiting_seconds"] = seconds(summary.waited);
  json["overuse_seconds"] = seconds(summary.overuse);
  json["handoffs"] = summary.handoffs;
  json["restored_bytes"] = summary.restored;
  json["evicted_bytes"] = summary.evicted;
  json["peak_footprint_bytes"] = summary.footprint;
  json["peak_resident_bytes"] = summary.resident;
  json["backends"] = summary.backends;
  json["gpus"] = summary.gpus;
  for (const SummaryLoss& loss : summary.gpu_losses)
    json["gpu_losses"].push_back(Json{{"node", loss.node}, {"gpu", loss.gpu}, {"reason", loss.reason}});
  // Writes ASCII only, so that the database's character set does not matter.
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::optional<JobSummary> parse_summary(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  JobSummary summary;
  std::uint64_t version = 0;
  Reader reader(json);
  reader.number("version", version).words("nodes", summary.nodes);
  reader.time("lease_seconds", summary.lease).time("waiting_seconds", summary.waited);
  reader.time("overuse_seconds", summary.overuse).number("handoffs", summary.handoffs);
  reader.number("restored_bytes", summary.restored).number("evicted_bytes", summary.evicted);
  reader.number("peak_footprint_bytes", summary.footprint).number("peak_resident_bytes", summary.resident);
  reader.words("backends", summary.backends).words("gpus", summary.gpus);
  reader.losses("gpu_losses", summary.gpu_losses);
  if (!reader.good() || version != kVersion) return std::nullopt;
  return summary;
}

Merged add_share(std::string_view comment, const JobSummary& share) {
  using Outcome = Merged::Outcome;
  const std::optional<Place> object = find_object(comment);
  const std::optional<Place> member = object ? find_member(comment, object->begin) : std::nullopt;
  std::string text;
  if (member) {
    const std::optional<JobSummary> before =
        parse_summary(comment.substr(member->begin, member->end - member->begin));
    if (!before) return {.outcome = Outcome::refused, .text = {}};
    if (std::includes(before->nodes.begin(), before->nodes.end(), share.nodes.begin(), share.nodes.end()))
      return {.outcome = Outcome::complete, .text = {}};
    text = replaced(comment, *member, format_summary(joined(*before, share)));
  } else {
    const std::string ours = "\"" + std::string(kName) + "\":" + format_summary(share);
    const bool blank = skip_blanks(comment, 0) == comment.size();
    if (object) {
      const std::size_t end = object->end - 1;
      const bool is_empty = skip_blanks(comment, object->begin + 1) == end;
      text = replaced(comment, {.begin = end, .end = end}, (is_empty ? "" : ",") + ours);
    } else {
      text = std::string(comment) + (blank ? "{" : " {") + ours + "}";
    }
  }
  if (text.size() > kMost) return {.outcome = Outcome::refused, .text = {}};
  return {.outcome = Outcome::changed, .text = std::move(text)};
}

std::optional<JobSummary> find_summary(std::string_view comment) {
  const std::optional<Place> object = find_object(comment);
  const std::optional<Place> member = object ? find_member(comment, object->begin) : std::nullopt;
  if (!member) return std::nullopt;
  return parse_summary(comment.substr(member->begin, member->end - member->begin));
}

CommentField field_for(std::string_view admin, std::string_view system, CommentField preferred) {
  constexpr std::string_view kJobstats = "JS1:";
  if (admin.starts_with(kJobstats)) return CommentField::system;
  if (find_summary(admin)) return CommentField::admin;
  return find_summary(system) ? CommentField::system : preferred;
}

std::optional<std::size_t> run_of(const std::vector<Span>& runs, Span seen) {
  constexpr std::int64_t kOpen = std::numeric_limits<std::int64_t>::max() / 2;
  const auto end_of = [](const Span& span) { return span.end == 0 ? kOpen : span.end; };
  std::optional<std::size_t> best;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    // The duration for which the two spans overlap. A negative value is the time between the spans.
    const std::int64_t common = std::min(end_of(runs[i]), end_of(seen)) - std::max(runs[i].begin, seen.begin);
    if (best && common <= most) continue;
    best = i;
    most = common;
  }
  return best;
}

}  // namespace sharedgpu
