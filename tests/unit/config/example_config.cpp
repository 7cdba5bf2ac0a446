// SPDX-License-Identifier: Apache-2.0
// Checks that the example etc/sharedgpu.conf contains every key with its default, as it claims. Also checks
// that the man page contains every key.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "config/settings.h"

using namespace sharedgpu;

namespace {

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("every key is in the example configuration and in the man page") {
  const std::string example = text_of(SHAREDGPU_ETC "/sharedgpu.conf");
  const std::string manual = text_of(SHAREDGPU_ETC "/../docs/man/sharedgpu.conf.5");
  REQUIRE(settings_keys().size() > 10);
  for (std::string_view key : settings_keys()) {
    CAPTURE(key);
    CHECK(example.find("\n#" + std::string(key) + "=") != std::string::npos);
    CHECK(manual.find("\n.B " + std::string(key) + "=") != std::string::npos);
  }
}

TEST_CASE("the man page, the example and the page on operation name the keys that need a restart") {
  std::set<std::string> restart;
  const auto live = live_keys();
  for (const std::string_view key : settings_keys())
    if (std::find(live.begin(), live.end(), key) == live.end()) restart.emplace(key);
  const auto keys_between = [](const std::string& text, const std::string& begin, const std::string& end) {
    const std::size_t from = text.find(begin);
    REQUIRE(from != text.npos);
    const std::string part = text.substr(from, text.find(end, from) - from);
    std::set<std::string> keys;
    for (const std::string_view key : settings_keys())
      if (std::regex_search(part, std::regex("\\b" + std::string(key) + "\\b"))) keys.emplace(key);
    return keys;
  };
  const std::string manual = text_of(SHAREDGPU_ETC "/../docs/man/sharedgpu.conf.5");
  CHECK(keys_between(manual, "take effect at once, except", "which need a restart") == restart);
  CHECK(keys_between(text_of(SHAREDGPU_ETC "/sharedgpu.conf"), "lets a running arbiter read",
                     "need a restart") == restart);
  CHECK(keys_between(text_of(SHAREDGPU_ETC "/../docs/operate.md"), "These keys need a restart",
                     "All other keys") == restart);
}

TEST_CASE("the example configuration is valid, and shows the defaults") {
  Settings settings;
  CHECK(read_settings(SHAREDGPU_ETC "/sharedgpu.conf", settings).empty());

  std::ifstream file(SHAREDGPU_ETC "/sharedgpu.conf");
  std::ostringstream keys;
  for (std::string line; std::getline(file, line);)
    // For LogFile and MungeSocket, no value expresses the default.
    if (std::regex_match(line, std::regex("#[A-Za-z]+=.*")) && line != "#LogFile=" && line != "#MungeSocket=")
      keys << line.substr(1) << '\n';
  REQUIRE(keys.str().find("Socket=") != std::string::npos);
  CHECK(parse_settings(keys.str(), "example", settings) == "");
  const Settings defaults;
  CHECK(settings.socket == defaults.socket);
  CHECK(settings.state_dir == defaults.state_dir);
  CHECK(settings.ledger_size == defaults.ledger_size);
  CHECK(settings.ledger_files == defaults.ledger_files);
  CHECK(settings.device_memory_limit.percent == defaults.device_memory_limit.percent);
  CHECK(settings.memory_reserve.percent == defaults.memory_reserve.percent);
  CHECK(settings.policy == defaults.policy);
  CHECK(settings.quantum == defaults.quantum);
  CHECK(settings.max_swap_overhead == defaults.max_swap_overhead);
  CHECK(settings.max_wait == defaults.max_wait);
  CHECK(settings.idle_release == defaults.idle_release);
  CHECK(settings.units_per_gpu == defaults.units_per_gpu);
  CHECK(settings.swap_per_unit.entries.size() == defaults.swap_per_unit.entries.size());
  CHECK(settings.gpu_memory.entries.size() == defaults.gpu_memory.entries.size());
  CHECK(settings.host_memory_per_unit == defaults.host_memory_per_unit);
  CHECK(settings.cgroup_parent == defaults.cgroup_parent);
  CHECK(settings.arbiter_timeout == defaults.arbiter_timeout);
  CHECK(settings.peer_port == defaults.peer_port);
  CHECK(settings.peer_address == defaults.peer_address);
  CHECK(settings.on_no_arbiter == defaults.on_no_arbiter);
  CHECK(settings.slurm_user == defaults.slurm_user);
  CHECK(settings.admin_users == defaults.admin_users);
  CHECK(settings.status_users == defaults.status_users);
  CHECK(settings.private_data == defaults.private_data);
  CHECK(settings.notice_after == defaults.notice_after);
  CHECK(settings.summary == defaults.summary);
  CHECK(settings.log_level == defaults.log_level);
}
