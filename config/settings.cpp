// SPDX-License-Identifier: Apache-2.0
#include "config/settings.h"

#include <ini.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "config/nearest.h"
#include "protocol/gpu_names.h"
#include "protocol/split.h"

namespace sharedgpu {
namespace {

// Returns an empty string, or a description of the valid values.
using Setter = std::string (*)(Settings&, std::string_view value);

struct Key {
  const char* name;
  Setter set;
  // The kinds of sections that may contain the key, as bits of SectionOf. Zero: no section may contain the
  // key, and `sharedgpu set` cannot change it.
  std::uint8_t sections = 0;
  // If true, a running arbiter applies a new value when it reloads its file. Keys that sections may contain
  // are always live.
  bool live = false;

  constexpr bool is_live() const { return live || sections != 0; }
};

constexpr std::uint8_t kOfNode = 0;  // the value of Key::sections if no section may contain the key
constexpr bool kLive = true;

constexpr std::uint8_t bit(SectionOf of) { return static_cast<std::uint8_t>(of); }
constexpr std::uint8_t kOfJobs = bit(SectionOf::partition) | bit(SectionOf::qos);
constexpr std::uint8_t kOfTurns = bit(SectionOf::gpu) | bit(SectionOf::partition);

struct Kind {
  SectionOf of;
  std::string_view name;
};
constexpr Kind kKinds[] = {
    {SectionOf::gpu, "gpu"}, {SectionOf::partition, "partition"}, {SectionOf::qos, "qos"}};

constexpr char kTimeHint[] = "a time with a unit (such as 500ms, 10s, 2m)";
constexpr char kSizeHint[] = "a size with a unit (such as 24GiB)";
constexpr char kAmountHint[] = "a size with a unit (such as 24GiB) or a percentage (such as 90%)";

template <std::string Settings::*Member>
std::string set_path(Settings& settings, std::string_view value) {
  if (value.empty() || value.front() != '/') return "an absolute path";
  settings.*Member = value;
  return {};
}

template <Nanoseconds Settings::*Member, long Least>
std::string set_time(Settings& settings, std::string_view value) {
  auto time = parse_time(value);
  if (!time) return kTimeHint;
  if (*time < Nanoseconds(Least)) return "long enough";
  settings.*Member = *time;
  return {};
}

std::string set_quantum(Settings& settings, std::string_view value) {
  if (value == "auto") {
    settings.quantum = {};
    return {};
  }
  std::string what = set_time<&Settings::quantum, 1'000'000>(settings, value);
  return what == kTimeHint ? what + " or auto" : what;
}

// Values above 50% are refused: they would have no effect, since no turn is shorter than a handoff.
std::string set_max_swap_overhead(Settings& settings, std::string_view value) {
  auto percent = parse_percent(value);
  if (!percent || *percent < 0.1 || *percent > 50) return "a percentage from 0.1% to 50%";
  settings.max_swap_overhead = *percent;
  return {};
}

template <Amount Settings::*Member, bool ZeroServes>
std::string set_amount(Settings& settings, std::string_view value) {
  auto amount = parse_amount(value);
  if (!amount) return kAmountHint;
  if (!ZeroServes && amount->percent == 0 && amount->bytes == Bytes{}) return "greater than zero";
  settings.*Member = *amount;
  return {};
}

std::string set_swap_per_unit(Settings& settings, std::string_view value) {
  if (value == "unlimited") {
    settings.swap_per_unit = {};
    return {};
  }
  auto sizes = parse_typed_sizes(value, true);
  if (!sizes)
    return std::string(kSizeHint) + ", auto, both by type (such as a100:10GiB,h100:auto), or unlimited";
  settings.swap_per_unit = *sizes;
  return {};
}

std::string set_gpu_memory(Settings& settings, std::string_view value) {
  if (value == "unknown") {
    settings.gpu_memory = {};
    return {};
  }
  auto sizes = parse_typed_sizes(value, false);
  if (!sizes) return std::string(kSizeHint) + ", sizes by type (such as a100:80GiB,h200:141GiB), or unknown";
  settings.gpu_memory = *sizes;
  return {};
}

std::string set_host_memory_per_unit(Settings& settings, std::string_view value) {
  const auto size = value == "none" ? std::optional(Bytes{}) : parse_size(value);
  if (!size || (*size == Bytes{} && value != "none")) return std::string(kSizeHint) + " or none";
  settings.host_memory_per_unit = *size;
  return {};
}

std::string set_cgroup_parent(Settings& settings, std::string_view value) {
  constexpr std::size_t kLongest = 1000;
  const bool is_path =
      value.size() > 1 && value.size() <= kLongest && value.front() == '/' && value.back() != '/';
  if (!is_path || value.find("//") != value.npos || value.find("/.") != value.npos)
    return "the path of a control group below that of the host (such as /sharedgpu)";
  settings.cgroup_parent = value;
  return {};
}

template <std::string Settings::*Member>
std::string set_user(Settings& settings, std::string_view value) {
  if (value.empty() || value.find_first_of(" ,") != value.npos) return "a user's name or number";
  settings.*Member = value;
  return {};
}

std::string set_policy(Settings& settings, std::string_view value) {
  if (std::find(std::begin(kPolicies), std::end(kPolicies), value) == std::end(kPolicies)) {
    std::string what = "a policy (";
    for (std::string_view policy : kPolicies)
      what += (policy == kPolicies[0] ? "" : ", ") + std::string(policy);
    return what + ")";
  }
  settings.policy = value;
  return {};
}

template <class Integer>
std::optional<Integer> parse_integer(std::string_view text, Integer least, Integer most) {
  const auto number = parse_number<Integer>(text);
  return number && *number >= least && *number <= most ? number : std::nullopt;
}

std::string set_units(Settings& settings, std::string_view value) {
  auto units = parse_integer<std::uint32_t>(value, 1, 1024);
  if (!units) return "a number from 1 to 1024";
  settings.units_per_gpu = *units;
  return {};
}

std::string set_shares(Settings& settings, std::string_view value) {
  if (value != "stated" && value != "units") return "stated or units";
  settings.shares = value == "units" ? Shares::units : Shares::stated;
  return {};
}

std::string set_max_request(Settings& settings, std::string_view value) {
  auto percent = parse_percent(value);
  if (!percent || *percent < 1 || *percent > 100) return "a percentage from 1% to 100%";
  settings.max_request = *percent;
  return {};
}

template <std::int32_t Settings::*Member>
std::string set_priority(Settings& settings, std::string_view value) {
  auto priority = parse_integer<std::int32_t>(value, -kHighestPriority, kHighestPriority);
  if (!priority) return "a number from -1000 to 1000";
  settings.*Member = *priority;
  return {};
}

std::string set_ledger_size(Settings& settings, std::string_view value) {
  auto size = parse_size(value);
  if (!size) return kSizeHint;
  if (*size < mebibytes(1) || *size > gibibytes(4)) return "a size from 1MiB to 4GiB";
  settings.ledger_size = *size;
  return {};
}

std::string set_ledger_files(Settings& settings, std::string_view value) {
  auto files = parse_integer<std::uint32_t>(value, 2, 1000);
  if (!files) return "a number from 2 to 1000";
  settings.ledger_files = *files;
  return {};
}

std::string set_on_no_arbiter(Settings& settings, std::string_view value) {
  if (value == "plain")
    settings.on_no_arbiter = OnNoArbiter::plain;
  else if (value == "fail")
    settings.on_no_arbiter = OnNoArbiter::fail;
  else
    return "plain or fail";
  return {};
}

std::string set_on_overuse(Settings& settings, std::string_view value) {
  if (value != "warn" && value != "cancel") return "warn or cancel";
  settings.on_overuse = value == "cancel" ? Measure::cancel : Measure::warn;
  return {};
}

std::string set_unmanaged(Settings& settings, std::string_view value) {
  if (value == "ignore")
    settings.unmanaged = Measure::ignore;
  else if (value == "warn")
    settings.unmanaged = Measure::warn;
  else if (value == "cancel")
    settings.unmanaged = Measure::cancel;
  else
    return "ignore, warn or cancel";
  return {};
}

std::string set_on_gpu_loss(Settings& settings, std::string_view value) {
  GpuLossMeasures measures;
  for (const std::string_view word : split(value, ',')) {
    if (word == "drain" && !measures.drain)
      measures.drain = true;
    else if (word == "requeue" && !measures.requeue)
      measures.requeue = true;
    else if (value != "nothing")
      return "nothing, drain, requeue or drain,requeue";
  }
  settings.on_gpu_loss = measures;
  return {};
}

std::string set_tenants(Settings& settings, std::string_view value) {
  if (value != "jobs" && value != "any") return "jobs or any";
  settings.tenants = value == "jobs" ? TenantKind::jobs : TenantKind::any;
  return {};
}

std::string set_peer_port(Settings& settings, std::string_view value) {
  const auto port = parse_integer<std::uint16_t>(value, 0, 1023);
  if (!port) return "a number from 1 to 1023, or 0 for none";
  settings.peer_port = *port;
  return {};
}

std::string set_peer_address(Settings& settings, std::string_view value) {
  settings.peer_address = value;
  return {};
}

template <std::vector<std::string> Settings::*Member>
std::string set_users(Settings& settings, std::string_view value) {
  (settings.*Member).clear();
  while (!value.empty()) {
    std::size_t end = std::min(value.find_first_of(", "), value.size());
    if (end > 0) (settings.*Member).emplace_back(value.substr(0, end));
    value.remove_prefix(std::min(end + 1, value.size()));
  }
  return {};
}

std::string set_private_data(Settings& settings, std::string_view value) {
  if (value == "slurm")
    settings.private_data = PrivateData::slurm;
  else if (value == "jobs")
    settings.private_data = PrivateData::jobs;
  else if (value == "none")
    settings.private_data = PrivateData::none;
  else
    return "slurm, jobs or none";
  return {};
}

std::string set_notice_after(Settings& settings, std::string_view value) {
  const auto time = value == "no" ? std::optional(Nanoseconds{}) : parse_time(value);
  if (!time) return std::string(kTimeHint) + " or no";
  settings.notice_after = *time;
  return {};
}

template <bool Settings::*Member>
std::string set_flag(Settings& settings, std::string_view value) {
  if (value != "yes" && value != "no") return "yes or no";
  settings.*Member = value == "yes";
  return {};
}

std::string set_log_level(Settings& settings, std::string_view value) {
  static constexpr std::string_view kLevels[] = {"error", "warning", "info", "debug", "trace"};
  if (std::find(std::begin(kLevels), std::end(kLevels), value) == std::end(kLevels))
    return "one of error, warning, info, debug, trace";
  settings.log_level = value;
  return {};
}

std::string set_admin_comment(Settings& settings, std::string_view value) {
  if (value == "yes") {
    settings.comments = AdminComment::yes;
  } else if (value == "no") {
    settings.comments = AdminComment::no;
  } else if (value.starts_with('/')) {
    settings.comments = AdminComment::folder;
    settings.comment_folder = value;
  } else {
    return "yes, no or the full path of a folder";
  }
  return {};
}

std::string set_comment_field(Settings& settings, std::string_view value) {
  if (value != "AdminComment" && value != "SystemComment") return "AdminComment or SystemComment";
  settings.system_comment = value == "SystemComment";
  return {};
}

constexpr Key kKeys[] = {
    {"Socket", set_path<&Settings::socket>},
    {"StateDir", set_path<&Settings::state_dir>},
    {"LedgerSize", set_ledger_size, kOfNode, kLive},
    {"LedgerFiles", set_ledger_files, kOfNode, kLive},
    {"DeviceMemoryLimit", set_amount<&Settings::device_memory_limit, false>, kOfNode, kLive},
    {"MemoryReserve", set_amount<&Settings::memory_reserve, true>, kOfNode, kLive},
    {"Policy", set_policy, kOfTurns},
    {"Quantum", set_quantum, kOfTurns},
    {"MaxSwapOverhead", set_max_swap_overhead, kOfTurns},
    {"MaxWait", set_time<&Settings::max_wait, 100'000'000>, kOfTurns},
    {"IdleRelease", set_time<&Settings::idle_release, 0>, kOfNode, kLive},
    {"UnitsPerGpu", set_units},
    {"Shares", set_shares, kOfTurns},
    {"MaxRequest", set_max_request, kOfJobs},
    {"Priority", set_priority<&Settings::priority>, kOfJobs},
    {"MaxPriority", set_priority<&Settings::max_priority>, kOfJobs},
    {"Oversize", set_flag<&Settings::oversize>, kOfJobs},
    {"Mps", set_flag<&Settings::mps>},
    {"SwapPerUnit", set_swap_per_unit, kOfNode, kLive},
    {"GpuMemory", set_gpu_memory, kOfNode, kLive},
    {"HostMemoryPerUnit", set_host_memory_per_unit, kOfNode, kLive},
    {"CgroupParent", set_cgroup_parent},
    {"ArbiterTimeout", set_time<&Settings::arbiter_timeout, 0>, kOfNode, kLive},
    {"OnNoArbiter", set_on_no_arbiter, kOfNode, kLive},
    {"MaxOveruse", set_time<&Settings::max_overuse, 1'000'000'000>, kOfNode, kLive},
    {"OnOveruse", set_on_overuse, kOfNode, kLive},
    {"Unmanaged", set_unmanaged, kOfNode, kLive},
    {"OnGpuLoss", set_on_gpu_loss, kOfNode, kLive},
    {"Tenants", set_tenants, kOfNode, kLive},
    {"PeerPort", set_peer_port},
    {"PeerAddress", set_peer_address},
    {"MungeSocket", set_path<&Settings::munge_socket>},
    {"SlurmUser", set_user<&Settings::slurm_user>, kOfNode, kLive},
    {"AdminUsers", set_users<&Settings::admin_users>, kOfNode, kLive},
    {"StatusUsers", set_users<&Settings::status_users>, kOfNode, kLive},
    {"PrivateData", set_private_data, kOfNode, kLive},
    {"NoticeAfter", set_notice_after, kOfNode, kLive},
    {"Summary", set_flag<&Settings::summary>, kOfNode, kLive},
    {"AdminComment", set_admin_comment, kOfNode, kLive},
    {"CommentField", set_comment_field, kOfNode, kLive},
    {"LogLevel", set_log_level, kOfNode, kLive},
    {"LogFile", set_path<&Settings::log_file>, kOfNode, kLive},
};

constexpr std::uint32_t kHighestGpu = 1023;

const Key* find_key(std::string_view name) {
  const auto* key =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& each) { return each.name == name; });
  return key == std::end(kKeys) ? nullptr : key;
}

struct Parser {
  Parser(std::string_view text, const std::string& file, Settings& result)
      : rest(text), name(file), settings(result) {}

  std::string_view rest;
  const std::string& name;
  Settings& settings;
  bool changes_only = false;  // the text comes from a command that changes the settings of a running arbiter
  bool goes_on = false;       // parsing continues after an error
  int line = 0;
  std::vector<std::string> errors;  // at most one error for each line
  int failed_line = 0;              // the line of the last error
  std::string section;  // header of the last valid section as written, followed by a blank; empty before
                        // this section
  bool skips = false;   // the section's header is wrong, so its keys are not checked
  std::array<int, std::size(kKeys)> set_in{};  // the line that sets each key in the current section, or
                                               // before the first section; 0 if no line does

  void fail(const std::string& what) {
    if (std::exchange(failed_line, line) != line || errors.empty())
      errors.push_back(name + ":" + std::to_string(line) + ": " + what);
  }
  bool is_over() const { return !errors.empty() && !goes_on; }
};

std::string parse_names(std::string_view text, std::vector<std::string>& names) {
  for (const std::string_view word : split(text, ',')) {
    if (word.empty() || word.size() > JobClass::kLongest || word.find_first_of(" \t[]=") != word.npos)
      return "'" + std::string(word) + "' is not a name";
    names.emplace_back(word);
  }
  return {};
}

void store(std::vector<KeyValue>& values, std::string_view name, std::string_view value) {
  const auto same = [name](const KeyValue& each) { return each.first == name; };
  if (const auto known = std::find_if(values.begin(), values.end(), same); known != values.end())
    known->second = value;
  else
    values.emplace_back(name, value);
}

// The value of a key as written; null if it was not set.
const std::string* value_of(const std::vector<KeyValue>& values, std::string_view name) {
  const auto same = [name](const KeyValue& each) { return each.first == name; };
  const auto known = std::find_if(values.begin(), values.end(), same);
  return known == values.end() ? nullptr : &known->second;
}

// Handles a section header, such as "[gpu 0,2-3]". The keys after it belong to this section.
void begin_section(Parser& parser, std::string_view line) {
  line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
  const std::string_view inner = line.substr(1, line.size() - std::min<std::size_t>(line.size(), 2));
  const std::size_t blank = inner.find(' ');
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const Kind& each) { return each.name == inner.substr(0, blank); });
  parser.set_in = {};
  parser.skips = true;
  if (line.back() != ']' || blank == inner.npos || kind == std::end(kKinds))
    return parser.fail("'" + std::string(line) +
                       "' is not a section such as [gpu 0], [gpu 2,4-7], [partition long] or [qos high]");
  Section section{.of = kind->of, .gpus = {}, .names = {}, .head = std::string(line), .values = {}};
  const std::string_view list = inner.substr(blank + 1);
  const std::string what =
      section.of == SectionOf::gpu ? parse_gpu_names(list, section.gpus) : parse_names(list, section.names);
  if (!what.empty()) return parser.fail(std::string(line) + ": " + what);
  parser.settings.sections.push_back(section);
  parser.section = std::string(line) + " ";
  parser.skips = false;
}

// Passes one line at a time to inih, like fgets(), and counts the lines. Strips leading blanks, because inih
// takes an indented line for a continuation of the previous line. Handles section headers, because inih
// limits their length. Reports lines that are too long, because inih ignores them.
char* next_line(char* buffer, int size, void* stream) {
  auto& parser = *static_cast<Parser*>(stream);
  if (parser.rest.empty() || parser.is_over()) return nullptr;
  ++parser.line;
  std::size_t end = parser.rest.find('\n');
  std::string_view line = parser.rest.substr(0, end);
  parser.rest.remove_prefix(end == std::string_view::npos ? parser.rest.size() : end + 1);
  line.remove_prefix(std::min(line.find_first_not_of(" \t\v\f\r"), line.size()));
  if (line.find('\0') != line.npos) {
    parser.fail("a NUL character");
    line = "";
  }
  if (line.empty() || line.front() == '#') line = "";
  if (!line.empty() && line.front() == '[') {
    begin_section(parser, line);
    line = "";
  }
  if (line.size() + 2 > static_cast<std::size_t>(size)) {
    parser.fail("line longer than " + std::to_string(size - 2) + " characters");
    line = "";
  }
  if (!line.empty() && line.front() != ';' && line.find_first_of("=:") == line.npos) {
    parser.fail("expected Key=Value, not '" +
                std::string(line.substr(0, line.find_last_not_of(" \t\r") + 1)) + "'");
    line = "";
  }
  if (parser.is_over()) return nullptr;
  std::memcpy(buffer, line.data(), line.size());
  buffer[line.size()] = '\n';
  buffer[line.size() + 1] = '\0';
  return buffer;
}

std::string kinds_of(const Key& key) {
  std::string text;
  for (const Kind& kind : kKinds)
    if ((key.sections & bit(kind.of)) != 0) text += (text.empty() ? "" : " or ") + std::string(kind.name);
  return text;
}

int set_one(void* user, const char* /*section*/, const char* name, const char* value) {
  auto& parser = *static_cast<Parser*>(user);
  if (parser.skips) return 1;
  const std::string place = parser.section + name;
  const Key* key = find_key(name);
  if (key == nullptr) {
    parser.fail(parser.section + "unknown key '" + name + "'" + did_you_mean(name, settings_keys()));
    return 1;
  }
  const bool in_section = !parser.section.empty();
  if (key->sections == 0 && parser.changes_only)
    parser.fail(place + " cannot be changed while the arbiter runs");
  else if (key->sections == 0 && in_section)
    parser.fail(place + " holds for the node; it belongs before the first section");
  else if (in_section && (key->sections & bit(parser.settings.sections.back().of)) == 0)
    parser.fail(place + " cannot be in a section of this kind, only in " + kinds_of(*key));
  int& before = parser.set_in[static_cast<std::size_t>(key - kKeys)];
  if (before != 0) parser.fail(place + ": line " + std::to_string(before) + " sets it already");
  before = parser.line;
  Settings scratch;
  if (std::string what = key->set(in_section ? scratch : parser.settings, value); !what.empty())
    parser.fail(place + ": '" + value + "' is not " + what);
  else if (in_section)
    parser.settings.sections.back().values.emplace_back(name, value);
  else
    store(parser.settings.values, name, value);
  return 1;
}

// Parses `parser.rest` into `parser.settings`, up to the first error, or to the end if `parser.goes_on` is
// true.
void parse(Parser& parser) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (parser.rest.starts_with(kByteOrderMark)) parser.rest.remove_prefix(kByteOrderMark.size());
  const int bad = ini_parse_stream(next_line, &parser, set_one, &parser);
  if (!parser.errors.empty() || bad <= 0) return;
  parser.line = bad;
  parser.fail("expected Key=Value");
}

// Returns an error message and leaves `settings` unchanged, or an empty string on success.
std::string parse(std::string_view text, const std::string& name, bool changes_only, Settings& settings) {
  Settings result = settings;
  Parser parser(text, name, result);
  parser.changes_only = changes_only;
  parse(parser);
  if (!parser.errors.empty()) return parser.errors.front();
  settings = std::move(result);
  return {};
}

}  // namespace

bool GpuNames::has(std::uint32_t number, const GpuUuid& uuid) const {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end() ||
         std::find(uuids.begin(), uuids.end(), uuid) != uuids.end();
}

std::string parse_gpu_names(std::string_view text, GpuNames& gpus) {
  GpuNames result;
  for (std::string_view word : split(text, ',')) {
    GpuUuid uuid;
    if (parse_gpu(word, uuid)) {
      result.uuids.push_back(uuid);
      continue;
    }
    const std::size_t dash = word.find('-');
    const auto first = parse_integer<std::uint32_t>(word.substr(0, dash), 0, kHighestGpu);
    const auto last =
        dash == word.npos ? first : parse_integer<std::uint32_t>(word.substr(dash + 1), 0, kHighestGpu);
    if (!first || !last || *first > *last)
      return "'" + std::string(word) + "' is not a GPU's number, a range of them (2-3) or a UUID (GPU-...)";
    for (std::uint32_t number = *first; number <= *last; ++number) result.numbers.push_back(number);
  }
  if (result.numbers.empty() && result.uuids.empty()) return "no GPU is named";
  gpus = result;
  return {};
}

bool Section::has(std::string_view name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool Section::is_about_the_same(const Section& other) const {
  return of == other.of && gpus == other.gpus && names == other.names;
}

Settings with_section(const Settings& settings, const Section& section) {
  Settings changed = settings;
  for (const auto& [name, value] : section.values) find_key(name)->set(changed, value);
  return changed;
}

namespace {

// Applies the sections of the kind `of` for which `means` returns true. A [partition] section may contain
// keys about jobs and keys about turns. This function applies both, and each caller uses only the keys of one
// kind.
template <class Means>
void take_sections(const Settings& node, SectionOf of, Means means, Settings& settings) {
  for (const Section& section : node.sections) {
    if (section.of == of && means(section)) settings = with_section(settings, section);
  }
}

auto named(std::string_view name) {
  return [name](const Section& section) { return section.has(name); };
}

}  // namespace

Settings settings_of(const Settings& node, std::uint32_t number, const GpuUuid& gpu,
                     std::string_view partition) {
  Settings settings = node;
  take_sections(node, SectionOf::partition, named(partition), settings);
  take_sections(
      node, SectionOf::gpu, [&](const Section& section) { return section.gpus.has(number, gpu); }, settings);
  return settings;
}

Settings settings_of(const Settings& node, const JobClass& job) {
  Settings settings = node;
  take_sections(node, SectionOf::partition, named(job.partition), settings);
  take_sections(node, SectionOf::qos, named(job.qos), settings);
  return settings;
}

namespace {

// Removes values from the sections before number `first`: each value whose key a later section sets for the
// same GPUs, partitions or QOS. Without this, the list of sections would grow with each change.
void forget_what_is_set_again(std::vector<Section>& sections, std::size_t first) {
  for (std::size_t late = first; late < sections.size(); ++late)
    for (std::size_t early = 0; early < first; ++early) {
      if (!sections[early].is_about_the_same(sections[late])) continue;
      std::erase_if(sections[early].values, [&](const auto& old) {
        const auto& values = sections[late].values;
        return std::any_of(values.begin(), values.end(),
                           [&](const auto& each) { return each.first == old.first; });
      });
    }
  std::erase_if(sections, [](const Section& section) { return section.values.empty(); });
}

}  // namespace

std::string change_settings(std::string_view text, Settings& settings) {
  const std::size_t before = settings.sections.size();
  const std::string error = parse(text, "", true, settings);
  if (error.empty()) forget_what_is_set_again(settings.sections, before);
  return error.substr(error.empty() ? 0 : error.find(' ') + 1);  // without "NAME:LINE: "
}

namespace {

bool differs(const Key& key, const Settings& before, const Settings& after) {
  Settings old_value, new_value;
  if (const std::string* text = value_of(before.values, key.name)) key.set(old_value, *text);
  if (const std::string* text = value_of(after.values, key.name)) key.set(new_value, *text);
  return old_value != new_value;
}

// Returns the value of each key in each section, with the key's name as in Difference.
std::vector<KeyValue> values_in_sections(const Settings& settings) {
  std::vector<KeyValue> all;
  for (const Section& section : settings.sections)
    for (const auto& [name, value] : section.values) store(all, section.head + " " + name, value);
  return all;
}

}  // namespace

Difference difference(const Settings& before, const Settings& after) {
  Difference found;
  for (const Key& key : kKeys)
    if (differs(key, before, after)) (key.is_live() ? found.live : found.restart).emplace_back(key.name);
  const std::vector<KeyValue> old_values = values_in_sections(before);
  const std::vector<KeyValue> new_values = values_in_sections(after);
  for (const auto& [name, value] : new_values)
    if (const std::string* old = value_of(old_values, name); old == nullptr || *old != value)
      found.live.push_back(name);
  for (const auto& [name, value] : old_values)
    if (value_of(new_values, name) == nullptr) found.live.push_back(name);
  return found;
}

std::vector<KeyValue> chosen_values(const Settings& settings) {
  std::vector<KeyValue> chosen;
  for (const KeyValue& each : settings.values)
    if (differs(*find_key(each.first), {}, settings)) chosen.push_back(each);
  for (const KeyValue& each : values_in_sections(settings)) chosen.push_back(each);
  return chosen;
}

Settings with_live_keys(const Settings& before, const Settings& after) {
  Settings result;
  for (const Key& key : kKeys) {
    const std::string* value = value_of(key.is_live() ? after.values : before.values, key.name);
    if (value == nullptr) continue;
    key.set(result, *value);
    store(result.values, key.name, *value);
  }
  result.sections = after.sections;
  return result;
}

std::string parse_tenants(std::string_view value, Settings& settings) {
  std::string what = set_tenants(settings, value);
  if (!what.empty()) return "Tenants: '" + std::string(value) + "' is not " + what;
  store(settings.values, "Tenants", value);
  return {};
}

std::string mps_folder(const std::string& socket) { return socket.substr(0, socket.rfind('/')) + "/mps"; }

std::vector<std::string_view> settings_keys() {
  std::vector<std::string_view> names;
  for (const Key& key : kKeys) names.emplace_back(key.name);
  return names;
}

std::vector<std::string_view> live_keys() {
  std::vector<std::string_view> names;
  for (const Key& key : kKeys)
    if (key.is_live()) names.emplace_back(key.name);
  return names;
}

std::vector<std::string_view> section_keys() {
  std::vector<std::string_view> names;
  for (const Key& key : kKeys)
    if (key.sections != 0) names.emplace_back(key.name);
  return names;
}

std::vector<std::string_view> section_kinds() {
  std::vector<std::string_view> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::string parse_settings(std::string_view text, const std::string& name, Settings& settings) {
  Settings result;
  std::string error = parse(text, name, false, result);
  if (error.empty()) settings = result;
  return error;
}

namespace {

// Returns an empty string, or an error message.
std::string read_file(const std::string& path, std::string& text) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (file == nullptr) return path + ": " + std::strerror(errno);
  char piece[4096];
  while (const std::size_t size = std::fread(piece, 1, sizeof piece, file.get())) text.append(piece, size);
  return std::ferror(file.get()) != 0 ? path + ": " + std::strerror(errno) : std::string();
}

}  // namespace

std::string read_settings(const std::string& path, Settings& settings) {
  std::string text;
  std::string error = read_file(path, text);
  return error.empty() ? parse_settings(text, path, settings) : error;
}

Reading read_in_spite_of_errors(const std::string& path, Settings& settings) {
  settings = {};
  std::string text;
  if (std::string error = read_file(path, text); !error.empty())
    return {.readable = false, .errors = {std::move(error)}};
  Parser parser(text, path, settings);
  parser.goes_on = true;
  parse(parser);
  return {.readable = true, .errors = std::move(parser.errors)};
}

std::string read_default_settings(Settings& settings) {
  if (access(kDefaultConfigFile, F_OK) != 0 && errno == ENOENT) {
    settings = {};
    return {};
  }
  return read_settings(kDefaultConfigFile, settings);
}

std::optional<Settings> settings_in_file(const std::string& path) {
  Settings settings;
  const bool good = read_settings(path.empty() ? kDefaultConfigFile : path, settings).empty();
  return good ? std::optional(settings) : std::nullopt;
}

}  // namespace sharedgpu
