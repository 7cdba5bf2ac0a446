// SPDX-License-Identifier: Apache-2.0
// A reload of the settings: the new value of each key is used at once, or the key is named as needing a
// restart. A wrong file changes nothing, and running programs continue.
#include "arbiter/daemon/reload.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "host.h"

namespace sharedgpu::test {
namespace {

using Names = std::vector<std::string>;

// A value of each key that is not the default.
const std::map<std::string, std::string> kExamples = {
    {"Socket", "/a/socket"},
    {"StateDir", "/a/folder"},
    {"LedgerSize", "2MiB"},
    {"LedgerFiles", "3"},
    {"DeviceMemoryLimit", "50%"},
    {"MemoryReserve", "10%"},
    {"Policy", "fcfs"},
    {"Quantum", "7s"},
    {"MaxSwapOverhead", "12.5%"},
    {"MaxWait", "2m"},
    {"IdleRelease", "50ms"},
    {"UnitsPerGpu", "16"},
    {"Shares", "units"},
    {"MaxRequest", "50%"},
    {"Priority", "-5"},
    {"MaxPriority", "5"},
    {"Oversize", "yes"},
    {"Mps", "yes"},
    {"SwapPerUnit", "10GiB"},
    {"GpuMemory", "80GiB"},
    {"HostMemoryPerUnit", "4GiB"},
    {"CgroupParent", "/a/group"},
    {"ArbiterTimeout", "1s"},
    {"OnNoArbiter", "fail"},
    {"MaxOveruse", "10s"},
    {"OnOveruse", "cancel"},
    {"Unmanaged", "cancel"},
    {"OnGpuLoss", "drain"},
    {"Tenants", "jobs"},
    {"PeerPort", "600"},
    {"PeerAddress", "10.0.0.1"},
    {"MungeSocket", "/a/socket"},
    {"SlurmUser", "64030"},
    {"AdminUsers", "4321"},
    {"StatusUsers", "4322"},
    {"PrivateData", "jobs"},
    {"NoticeAfter", "7s"},
    {"Summary", "yes"},
    {"AdminComment", "no"},
    {"CommentField", "SystemComment"},
    {"LogLevel", "debug"},
    {"LogFile", "/a/file"},
};

// An arbiter whose file of settings is the string `file`.
struct ReloadedSite {
  explicit ReloadedSite(std::string text) : file(std::move(text)) {
    host.start();
    host.arbiter->reload().reads_from(
        {.read = [this](Settings& settings) { return parse_settings(file, "site.conf", settings); },
         .open_log =
             [](const Settings& settings) {
               return settings.log_file == "/no/log" ? Status(EACCES, "/no/log: no") : Status();
             },
         .begins = [this] { ++began; },
         .ends = [this] { ++ended; }});
    static_cast<void>(reload(file));
    host.new_log_lines();
  }
  Reload::Outcome reload(const std::string& text) {
    file = text;
    return host.arbiter->reload().reload("test");
  }
  const Settings& settings() const { return host.arbiter->settings(); }
  std::uint64_t capacity() const { return host.status()["gpus"][0]["capacity_bytes"]; }

  Host host;
  std::string file;
  int began = 0, ended = 0;
};

Settings parsed(const std::string& text) {
  Settings settings;
  REQUIRE(parse_settings(text, "x", settings).empty());
  return settings;
}

TEST_CASE("Reload: each key applies at once, or the answer says that it needs a restart") {
  const auto live = live_keys();
  for (const std::string_view key : settings_keys()) {
    const std::string name(key);
    INFO(name);
    REQUIRE(kExamples.count(name) == 1);
    ReloadedSite site("");
    const std::string text = name + "=" + kExamples.at(name);
    const Reload::Outcome outcome = site.reload(text);
    CHECK(outcome.error.empty());
    const bool is_live = std::find(live.begin(), live.end(), key) != live.end();
    CHECK((is_live ? outcome.keys.live : outcome.keys.restart) == Names{name});
    CHECK((is_live ? outcome.keys.restart : outcome.keys.live).empty());
    CHECK(difference(site.settings(), parsed(text)).live.empty());
    CHECK((difference(site.settings(), parsed(text)).restart == Names{name}) == !is_live);
    // a file without the key sets the default again
    CHECK((is_live ? site.reload("").keys.live : Names{name}) == Names{name});
    CHECK(difference(site.settings(), {}).live.empty());
  }
}

TEST_CASE("Reload: a wrong file, or a log that cannot be opened, changes nothing") {
  ReloadedSite site("Quantum=3s");
  const Reload::Outcome outcome = site.reload("Policy=fcfs\nQuantum=never");
  CHECK(outcome.error.starts_with("site.conf:2: Quantum: 'never' is not a time"));
  CHECK(site.host.status()["policy"] == "round-robin");
  CHECK(site.settings().quantum == std::chrono::seconds(3));
  CHECK(site.reload("Quantum=9s\nLogFile=/no/log").error == "LogFile /no/log: no");
  CHECK(site.settings().quantum == std::chrono::seconds(3));
  CHECK(site.host.new_log_lines() ==
        Names{"error: test: the settings stay as they are: site.conf:2: Quantum: 'never' is not a time with "
              "a unit (such as "
              "500ms, 10s, 2m) or auto",
              "error: test: the settings stay as they are: LogFile /no/log: no"});
  CHECK(site.began == 3);
  CHECK(site.ended == 3);
}

TEST_CASE("Reload: changes by sharedgpu set still apply") {
  ReloadedSite site("Quantum=3s\n[gpu 0]\nMaxWait=20s");
  Guest root(site.host);
  SetLines lines;
  std::strcpy(lines.text, "Quantum=8s");
  REQUIRE(root.say(lines).find<SetReply>()->done == 1);
  const Reload::Outcome outcome = site.reload("Quantum=4s\nPolicy=credit");
  CHECK(outcome.keys.live == Names{"Policy", "Quantum", "[gpu 0] MaxWait"});
  CHECK(outcome.overridden == Names{"Quantum"});
  CHECK(site.settings().quantum == std::chrono::seconds(8));
  CHECK(site.host.status()["gpus"][0]["policy"] == "credit");
}

TEST_CASE("Reload: new administrators, rights of tenants and Tenants= apply at once") {
  ReloadedSite site("SlurmUser=0");
  SetLines lines;
  std::strcpy(lines.text, "Quantum=8s");
  CHECK(Guest(site.host, kUser).say(lines).find<SetReply>()->done == 0);
  Guest outside(site.host, kUser);
  REQUIRE(outside.say(Hello{}).find<Welcome>());
  CHECK(site.host.status()["tenants"][0]["priority"] == 0);
  static_cast<void>(site.reload("AdminUsers=4321\nPriority=-7\nTenants=jobs"));
  CHECK(Guest(site.host, kUser).say(lines).find<SetReply>()->done == 1);
  CHECK(site.host.status()["tenants"][0]["priority"] == -7);
  CHECK(Guest(site.host, kUser).say(Hello{}).find<Refused>());
  CHECK(site.host.status()["tenants"].size() == 1);  // the tenant from before the reload continues
}

TEST_CASE("Reload: a GPU gets more memory at once, and less only when its sessions have ended") {
  ReloadedSite site("MemoryReserve=0%\nDeviceMemoryLimit=512MiB");
  CHECK(site.capacity() == mebibytes(512).count);
  {
    Guest session(site.host, kUser);
    REQUIRE(session.say(Hello{}).find<Welcome>());
    REQUIRE(session.say(Attach{.gpu = kHostGpu, .total = {}, .name = {}}).find<Attached>()->capacity ==
            mebibytes(512));
    CHECK(!site.reload("MemoryReserve=0%\nDeviceMemoryLimit=768MiB").waits);
    CHECK(site.capacity() == mebibytes(768).count);
    CHECK(site.reload("MemoryReserve=0%\nDeviceMemoryLimit=256MiB").waits);
    CHECK(site.capacity() == mebibytes(768).count);
    CHECK(site.reload("MemoryReserve=0%\nDeviceMemoryLimit=300MiB").waits);
  }
  site.host.run_until([&] { return site.capacity() != mebibytes(768).count; });
  CHECK(site.capacity() == mebibytes(300).count);
}

TEST_CASE("Reload: sessions that attach after the site has permitted it may have away memory") {
  ReloadedSite site("");
  Guest session(site.host, kUser);
  REQUIRE(session.say(Hello{}).find<Welcome>());
  const auto attaches = [&session] {
    return session.say(Attach{.gpu = kHostGpu, .total = {}, .name = {}}).find<Attached>()->oversize;
  };
  CHECK(attaches() == 0);
  const auto asks = [&session](unsigned away) {
    return session.say(Usage{.request = away, .use = {}, .away = mebibytes(away)}).find<Verdict>()->granted;
  };
  CHECK(asks(10) == 0);
  static_cast<void>(site.reload("Oversize=yes"));
  CHECK(asks(10) == 0);
  CHECK(attaches() == 1);
  CHECK(asks(10) == 1);
  CHECK(site.host.status()["tenants"][0]["away_bytes"] == mebibytes(10).count);
  static_cast<void>(site.reload("[qos large]\nOversize=yes"));
  CHECK(asks(11) == 0);
  CHECK(site.host.status()["tenants"][0]["away_bytes"] == mebibytes(10).count);
}

TEST_CASE("A session of an older library may not have away memory") {
  ReloadedSite site("Oversize=yes");
  Guest session(site.host, kUser);
  Message hello = Message::of(Hello{});
  hello.version = Usage::kAway - 1;
  REQUIRE(send(session.channel.fd(), &hello, sizeof hello, 0) == sizeof hello);
  REQUIRE(session.hear().find<Welcome>());
  const auto attached = session.say(Attach{.gpu = kHostGpu, .total = {}, .name = {}}).find<Attached>();
  REQUIRE(attached);
  CHECK(attached->oversize == 0);
}

TEST_CASE("Reload: the answer names the keys, and only administrators may ask") {
  ReloadedSite site("");
  site.file = "Quantum=2s\nMps=yes";
  Guest root(site.host);
  const auto reply = root.say(ReloadSettings{}).find<ReloadReply>();
  REQUIRE(reply);
  CHECK(reply->done == 1);
  std::string text(reply->size, ' ');
  REQUIRE(pread(root.last_descriptor.get(), text.data(), text.size(), 0) ==
          static_cast<ssize_t>(text.size()));
  const auto json = nlohmann::json::parse(text);
  CHECK(json["error"].is_null());
  CHECK(json["changed"] == nlohmann::json({"Quantum"}));
  CHECK(json["need_restart"] == nlohmann::json({"Mps"}));
  CHECK(Guest(site.host, kUser).say(ReloadSettings{}).find<ReloadReply>()->done == 0);
}

}  // namespace
}  // namespace sharedgpu::test
