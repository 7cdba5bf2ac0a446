// SPDX-License-Identifier: Apache-2.0
// Compares the keys of sharedgpu.conf and their defaults with keys.golden, because sites use these keys in
// their files.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "config/settings.h"
#include "tests/unit/golden.h"

namespace sharedgpu {
namespace {

struct Key {
  const char* name;
  const char* example;  // a value that is not the default
  std::string (*value)(const Settings&);
};

std::string text_of(const std::string& text) { return text.empty() ? "(empty)" : text; }
std::string text_of(Bytes size) { return std::to_string(size.count) + " bytes"; }
std::string text_of(Nanoseconds time) { return std::to_string(time.count()) + " ns"; }
std::string text_of(std::uint32_t number) { return std::to_string(number); }
std::string text_of(std::int32_t number) { return std::to_string(number); }
std::string text_of(bool value) { return value ? "yes" : "no"; }
std::string text_of(double number) {
  char text[40];
  std::snprintf(text, sizeof text, "%g%%", number);
  return text;
}
std::string text_of(const Amount& amount) {
  return amount.percent != 0 ? text_of(amount.percent) : text_of(amount.bytes);
}
std::string text_of(Shares shares) { return shares == Shares::units ? "units" : "stated"; }
std::string text_of(PrivateData data) {
  return data == PrivateData::slurm ? "slurm" : data == PrivateData::jobs ? "jobs" : "none";
}
std::string text_of(const TypedSizes& sizes) { return text_of(format_typed_sizes(sizes)); }
std::string text_of(OnNoArbiter choice) { return choice == OnNoArbiter::fail ? "fail" : "plain"; }
std::string text_of(Measure measure) {
  return measure == Measure::ignore ? "ignore" : measure == Measure::warn ? "warn" : "cancel";
}
std::string text_of(const GpuLossMeasures& measures) {
  if (measures.drain && measures.requeue) return "drain,requeue";
  return measures.drain ? "drain" : measures.requeue ? "requeue" : "nothing";
}
std::string text_of(std::optional<TenantKind> tenants) {
  return tenants == TenantKind::jobs ? "jobs" : "any";
}
std::string text_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text_of(text);
}

template <auto Member>
std::string value_of(const Settings& settings) {
  return text_of(settings.*Member);
}
std::string comments_of(const Settings& settings) {
  if (settings.comments == AdminComment::folder) return settings.comment_folder;
  return settings.comments == AdminComment::yes ? "yes" : "no";
}

std::string comment_field_of(const Settings& settings) {
  return settings.system_comment ? "SystemComment" : "AdminComment";
}

constexpr Key kKeys[] = {
    {"Socket", "/a/socket", value_of<&Settings::socket>},
    {"StateDir", "/a/folder", value_of<&Settings::state_dir>},
    {"LedgerSize", "2MiB", value_of<&Settings::ledger_size>},
    {"LedgerFiles", "3", value_of<&Settings::ledger_files>},
    {"DeviceMemoryLimit", "24GiB", value_of<&Settings::device_memory_limit>},
    {"MemoryReserve", "1GiB", value_of<&Settings::memory_reserve>},
    {"Policy", "fcfs", value_of<&Settings::policy>},
    {"Quantum", "7s", value_of<&Settings::quantum>},
    {"MaxSwapOverhead", "12.5%", value_of<&Settings::max_swap_overhead>},
    {"MaxWait", "2m", value_of<&Settings::max_wait>},
    {"IdleRelease", "50ms", value_of<&Settings::idle_release>},
    {"UnitsPerGpu", "16", value_of<&Settings::units_per_gpu>},
    {"Shares", "units", value_of<&Settings::shares>},
    {"MaxRequest", "50%", value_of<&Settings::max_request>},
    {"Priority", "-5", value_of<&Settings::priority>},
    {"MaxPriority", "5", value_of<&Settings::max_priority>},
    {"Oversize", "yes", value_of<&Settings::oversize>},
    {"Mps", "yes", value_of<&Settings::mps>},
    {"SwapPerUnit", "a100:10GiB,h100:auto", value_of<&Settings::swap_per_unit>},
    {"GpuMemory", "80GiB", value_of<&Settings::gpu_memory>},
    {"HostMemoryPerUnit", "4GiB", value_of<&Settings::host_memory_per_unit>},
    {"CgroupParent", "/a/group", value_of<&Settings::cgroup_parent>},
    {"ArbiterTimeout", "1s", value_of<&Settings::arbiter_timeout>},
    {"OnNoArbiter", "fail", value_of<&Settings::on_no_arbiter>},
    {"MaxOveruse", "10s", value_of<&Settings::max_overuse>},
    {"OnOveruse", "cancel", value_of<&Settings::on_overuse>},
    {"Unmanaged", "cancel", value_of<&Settings::unmanaged>},
    {"OnGpuLoss", "drain,requeue", value_of<&Settings::on_gpu_loss>},
    {"Tenants", "jobs", value_of<&Settings::tenants>},
    {"PeerPort", "600", value_of<&Settings::peer_port>},
    {"PeerAddress", "10.0.0.1", value_of<&Settings::peer_address>},
    {"MungeSocket", "/a/socket", value_of<&Settings::munge_socket>},
    {"SlurmUser", "64030", value_of<&Settings::slurm_user>},
    {"AdminUsers", "alice, bob 1000", value_of<&Settings::admin_users>},
    {"StatusUsers", "carol,dave", value_of<&Settings::status_users>},
    {"PrivateData", "jobs", value_of<&Settings::private_data>},
    {"NoticeAfter", "1m", value_of<&Settings::notice_after>},
    {"Summary", "yes", value_of<&Settings::summary>},
    {"AdminComment", "/a/folder", comments_of},
    {"CommentField", "SystemComment", comment_field_of},
    {"LogLevel", "debug", value_of<&Settings::log_level>},
    {"LogFile", "/a/file", value_of<&Settings::log_file>},
};

// The words that a key accepts.
struct Words {
  const char* key;
  std::vector<const char*> words;
};
const Words kWords[] = {
    {"Policy", {"round-robin", "fcfs", "shortest-first", "credit", "priority", "elastic", "deadline"}},
    {"Quantum", {"auto"}},
    {"Shares", {"stated", "units"}},
    {"Oversize", {"yes", "no"}},
    {"Mps", {"yes", "no"}},
    {"SwapPerUnit", {"unlimited", "auto"}},
    {"GpuMemory", {"unknown"}},
    {"HostMemoryPerUnit", {"none"}},
    {"OnNoArbiter", {"plain", "fail"}},
    {"PrivateData", {"slurm", "jobs", "none"}},
    {"NoticeAfter", {"no"}},
    {"Summary", {"yes", "no"}},
    {"AdminComment", {"yes", "no"}},
    {"CommentField", {"AdminComment", "SystemComment"}},
    {"LogLevel", {"error", "warning", "info", "debug", "trace"}},
};

std::string error_of(const std::string& text, Settings& settings) {
  return parse_settings(text, "x.conf", settings);
}
std::string error_of(const std::string& text) {
  Settings settings;
  return error_of(text, settings);
}

// The kinds of sections that the key may stand in, with commas between them.
std::string kinds_of(const Key& key) {
  std::string kinds;
  for (const std::string_view kind : section_kinds()) {
    const std::string section = "[" + std::string(kind) + " 0]\n" + key.name + "=" + key.example;
    if (error_of(section).empty()) kinds += (kinds.empty() ? "" : ",") + std::string(kind);
  }
  return kinds.empty() ? "-" : kinds;
}

TEST_CASE("golden: keys of sharedgpu.conf") {
  std::string text =
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Made by keys_golden.cpp; tests/golden says how to write it again.\n\n"
      "# key             sections       reload   default -> as read from an example\n";
  std::vector<std::string_view> names;
  for (const Key& key : kKeys) {
    names.emplace_back(key.name);
    Settings settings;
    const std::string before = key.value(settings);
    const std::string line = std::string(key.name) + "=" + key.example;
    INFO(line);
    CHECK(error_of(line, settings).empty());
    CHECK(key.value(settings) != before);
    const auto live = live_keys();
    const bool is_live = std::find(live.begin(), live.end(), key.name) != live.end();
    char row[200];
    std::snprintf(row, sizeof row, "%-17s %-14s %-8s %s -> %s\n", key.name, kinds_of(key).c_str(),
                  is_live ? "live" : "restart", before.c_str(), key.value(settings).c_str());
    text += row;
  }
  CHECK(names == settings_keys());
  text += "\n# words that are taken\n";
  for (const auto& [key, words] : kWords)
    for (const char* word : words) {
      INFO(key << "=" << word);
      CHECK(error_of(std::string(key) + "=" + word).empty());
      text += std::string(key) + "=" + word + "\n";
    }
  text += std::string("\n# the file that is read without --config\n") + kDefaultConfigFile + "\n";
  CHECK(test::is_golden("keys.golden", text));
}

}  // namespace
}  // namespace sharedgpu
