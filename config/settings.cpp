// SPDX-License-Identifier: Apache-2.0
#include "config/settings.h"

#include <ini.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

namespace sharedgpu {
namespace {

// Each setter returns an empty string, or what the value is not.
using Setter = std::string (*)(Settings&, std::string_view value);

struct Key {
  const char* name;
  Setter set;
};

constexpr char kTimeHint[] = "a time (such as 500ms, 10s, 2m)";
constexpr char kSizeHint[] = "a size (such as 24GiB)";
constexpr char kAmountHint[] = "a size (such as 24GiB) or a percentage (such as 90%)";

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

// More than half of the time no turn costs.
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
  if (!ZeroServes && amount->percent == 0 && amount->bytes == Bytes{}) return "more than nothing";
  settings.*Member = *amount;
  return {};
}

std::string set_swap_per_unit(Settings& settings, std::string_view value) {
  if (value == "unlimited") {
    settings.swap_per_unit = {};
    return {};
  }
  auto size = parse_size(value);
  if (!size) return std::string(kSizeHint) + " or unlimited";
  if (*size == Bytes{}) return "more than nothing";
  settings.swap_per_unit = *size;
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
  Integer number = 0;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || rest != end || number < least || number > most) return std::nullopt;
  return number;
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

std::string set_max_priority(Settings& settings, std::string_view value) {
  auto priority = parse_integer<std::int32_t>(value, -kHighestPriority, kHighestPriority);
  if (!priority) return "a number from -1000 to 1000";
  settings.max_priority = *priority;
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

std::string set_admin_users(Settings& settings, std::string_view value) {
  settings.admin_users.clear();
  while (!value.empty()) {
    std::size_t end = std::min(value.find_first_of(", "), value.size());
    if (end > 0) settings.admin_users.emplace_back(value.substr(0, end));
    value.remove_prefix(std::min(end + 1, value.size()));
  }
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

constexpr Key kKeys[] = {
    {"Socket", set_path<&Settings::socket>},
    {"StateDir", set_path<&Settings::state_dir>},
    {"LedgerSize", set_ledger_size},
    {"LedgerFiles", set_ledger_files},
    {"DeviceMemoryLimit", set_amount<&Settings::device_memory_limit, false>},
    {"MemoryReserve", set_amount<&Settings::memory_reserve, true>},
    {"Policy", set_policy},
    {"Quantum", set_quantum},
    {"MaxSwapOverhead", set_max_swap_overhead},
    {"MaxWait", set_time<&Settings::max_wait, 100'000'000>},
    {"IdleRelease", set_time<&Settings::idle_release, 0>},
    {"UnitsPerGpu", set_units},
    {"Shares", set_shares},
    {"MaxRequest", set_max_request},
    {"MaxPriority", set_max_priority},
    {"SwapPerUnit", set_swap_per_unit},
    {"ArbiterTimeout", set_time<&Settings::arbiter_timeout, 0>},
    {"OnNoArbiter", set_on_no_arbiter},
    {"SlurmUser", set_user<&Settings::slurm_user>},
    {"AdminUsers", set_admin_users},
    {"AdminComment", set_admin_comment},
    {"LogLevel", set_log_level},
    {"LogFile", set_path<&Settings::log_file>},
};

struct Reading {
  std::string_view rest;
  const std::string& name;
  Settings& settings;
  int line = 0;
  std::string error;
  std::array<int, std::size(kKeys)> set_in{};  // the line of each key; 0: none so far

  void fail(const std::string& what) {
    if (error.empty()) error = name + ":" + std::to_string(line) + ": " + what;
  }
};

// Hands inih one line at a time, as fgets would, and keeps the line's number. Blanks at the line's start go,
// because inih would take them for a continuation; sections and over-long lines are errors here, because inih
// would pass over them.
char* next_line(char* buffer, int size, void* stream) {
  auto& reading = *static_cast<Reading*>(stream);
  if (reading.rest.empty() || !reading.error.empty()) return nullptr;
  ++reading.line;
  std::size_t end = reading.rest.find('\n');
  std::string_view line = reading.rest.substr(0, end);
  reading.rest.remove_prefix(end == std::string_view::npos ? reading.rest.size() : end + 1);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  if (line.find('\0') != line.npos) {
    reading.fail("a NUL character");
    return nullptr;
  }
  if (line.empty() || line.front() == '#') line = "";
  if (!line.empty() && line.front() == '[') {
    reading.fail("sections are not used; expected Key=Value");
    return nullptr;
  }
  if (line.size() + 2 > static_cast<std::size_t>(size)) {
    reading.fail("line longer than " + std::to_string(size - 2) + " characters");
    return nullptr;
  }
  std::memcpy(buffer, line.data(), line.size());
  buffer[line.size()] = '\n';
  buffer[line.size() + 1] = '\0';
  return buffer;
}

int set_one(void* user, const char* /*section*/, const char* name, const char* value) {
  auto& reading = *static_cast<Reading*>(user);
  for (const Key& key : kKeys) {
    if (std::strcmp(key.name, name) != 0) continue;
    int& before = reading.set_in[static_cast<std::size_t>(&key - kKeys)];
    if (before != 0)
      reading.fail(std::string(name) + ": line " + std::to_string(before) + " sets it already");
    before = reading.line;
    if (std::string what = key.set(reading.settings, value); !what.empty())
      reading.fail(std::string(name) + ": '" + value + "' is not " + what);
    return 1;
  }
  reading.fail(std::string("unknown key '") + name + "'");
  return 1;
}

}  // namespace

std::vector<std::string_view> settings_keys() {
  std::vector<std::string_view> names;
  for (const Key& key : kKeys) names.emplace_back(key.name);
  return names;
}

std::string parse_settings(std::string_view text, const std::string& name, Settings& settings) {
  Settings result;
  Reading reading{.rest = text, .name = name, .settings = result, .line = 0, .error = {}, .set_in = {}};
  int bad = ini_parse_stream(next_line, &reading, set_one, &reading);
  if (reading.error.empty() && bad > 0) {
    reading.line = bad;
    reading.fail("expected Key=Value");
  }
  if (reading.error.empty()) settings = result;
  return reading.error;
}

std::string read_settings(const std::string& path, Settings& settings) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return path + ": " + std::strerror(errno);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return path + ": " + std::strerror(errno);
  return parse_settings(text, path, settings);
}

std::string read_default_settings(Settings& settings) {
  std::ifstream file(kDefaultConfigFile);
  if (!file && errno == ENOENT) {
    settings = {};
    return {};
  }
  return read_settings(kDefaultConfigFile, settings);
}

}  // namespace sharedgpu
