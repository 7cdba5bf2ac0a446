// SPDX-License-Identifier: Apache-2.0
#include "config/settings.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

std::string error_of(const std::string& text) {
  Settings settings;
  return parse_settings(text, "x.conf", settings);
}

TEST_CASE("Every key is read") {
  Settings settings;
  REQUIRE(parse_settings("# a comment\n"
                         "Socket=/tmp/s.sock\n"
                         "  StateDir = /tmp/state\r\n"
                         "\n"
                         "LedgerSize=2MiB\n"
                         "LedgerFiles=3\n"
                         "DeviceMemoryLimit=24GiB\n"
                         "MemoryReserve=2%\n"
                         "Policy=round-robin\n"
                         "Quantum=500ms\n"
                         "MaxSwapOverhead=2.5%\n"
                         "MaxWait=1m\n"
                         "IdleRelease=50ms\n"
                         "UnitsPerGpu=16\n"
                         "SwapPerUnit=12GiB\n"
                         "ArbiterTimeout=1s\n"
                         "OnNoArbiter=fail\n"
                         "SlurmUser=64030\n"
                         "AdminUsers=alice, bob 1000\n"
                         "StatusUsers=carol,prometheus\n"
                         "PrivateData=jobs\n"
                         "NoticeAfter=2m\n"
                         "Summary=yes\n"
                         "AdminComment=/shared/comments\n"
                         "LogLevel=debug\n"
                         "LogFile=/tmp/log",
                         "x.conf", settings) == "");
  CHECK(settings.socket == "/tmp/s.sock");
  CHECK(settings.state_dir == "/tmp/state");
  CHECK(settings.ledger_size == mebibytes(2));
  CHECK(settings.ledger_files == 3);
  CHECK(settings.device_memory_limit.of(gibibytes(100)) == gibibytes(24));
  CHECK(settings.memory_reserve.of(gibibytes(100)) == gibibytes(2));
  CHECK(settings.quantum == 500ms);
  CHECK(settings.max_swap_overhead == 2.5);
  CHECK(settings.max_wait == 1min);
  CHECK(settings.idle_release == 50ms);
  CHECK(settings.units_per_gpu == 16);
  CHECK(settings.swap_per_unit.common() == gibibytes(12));
  CHECK(settings.arbiter_timeout == 1s);
  CHECK(settings.on_no_arbiter == OnNoArbiter::fail);
  CHECK(settings.slurm_user == "64030");
  CHECK(settings.admin_users == std::vector<std::string>{"alice", "bob", "1000"});
  CHECK(settings.status_users == std::vector<std::string>{"carol", "prometheus"});
  CHECK(settings.private_data == PrivateData::jobs);
  CHECK(settings.notice_after == std::chrono::minutes(2));
  CHECK(settings.summary);
  CHECK(settings.comments == AdminComment::folder);
  CHECK(settings.comment_folder == "/shared/comments");
  CHECK(settings.log_level == "debug");
  CHECK(settings.log_file == "/tmp/log");
}

TEST_CASE("An empty file gives the defaults") {
  Settings settings;
  CHECK(parse_settings("", "x.conf", settings) == "");
  CHECK(settings.socket == kDefaultSocket);
  CHECK(settings.device_memory_limit.of(gibibytes(10)) == gibibytes(10));
  CHECK(settings.memory_reserve.of(gibibytes(100)) == gibibytes(5));
  CHECK(settings.quantum == 0s);  // zero: the arbiter chooses the length of turns
  CHECK(settings.comments == AdminComment::yes);
  CHECK(settings.max_swap_overhead == 5);
  CHECK(settings.max_wait == 30s);
  CHECK(settings.swap_per_unit.entries.empty());  // no entries: the limits of the job itself apply
}

constexpr GpuUuid kSome{{0x12, 0x34}};
constexpr char kSomeName[] = "GPU-12340000-0000-0000-0000-000000000000";

TEST_CASE("Sections hold for the GPUs that they name, and the last one has precedence") {
  Settings settings;
  REQUIRE(parse_settings("Policy=credit\n"
                         "Quantum=4s\n"
                         "[gpu 0,2-3]\n"
                         "Policy=elastic\n"
                         "  Shares=units\n"
                         "  [gpu " +
                             std::string(kSomeName) +
                             "] \r\n"
                             "# 2 by its other name\n"
                             "Policy=fcfs\n"
                             "MaxWait=1m\n"
                             "MaxSwapOverhead=10%\n"
                             "[gpu 9]\n",
                         "x.conf", settings) == "");
  const auto of = [&](std::uint32_t number, const GpuUuid& gpu = {}) {
    return settings_of(settings, number, gpu);
  };
  CHECK(settings.policy == "credit");
  CHECK(of(1).policy == "credit");
  CHECK(of(1).shares == Shares::stated);
  for (std::uint32_t number : {0, 2, 3}) CHECK(of(number).policy == "elastic");
  CHECK(of(2).quantum == 4s);
  CHECK(of(2).shares == Shares::units);
  CHECK(of(2, kSome).policy == "fcfs");
  CHECK(of(2, kSome).shares == Shares::units);
  CHECK(of(7, kSome).max_wait == 1min);
  CHECK(of(7, kSome).max_swap_overhead == 10);
}

TEST_CASE("Errors in sections name them") {
  CHECK(error_of("[gpu 0]\n\nPolicy=best").starts_with("x.conf:3: [gpu 0] Policy: 'best' is not a policy"));
  CHECK(error_of("[gpu 0]\nQuantum=1s\nQuantum=2s") == "x.conf:3: [gpu 0] Quantum: line 2 sets it already");
  CHECK(error_of("Quantum=1s\n[gpu 0]\nQuantum=1s\n[gpu 1]\nQuantum=2s") == "");
  CHECK(error_of("[gpu 0]\nFoo=1") == "x.conf:2: [gpu 0] unknown key 'Foo'");
  CHECK(error_of("[gpu 0]\nSocket=/x") ==
        "x.conf:2: [gpu 0] Socket holds for the node; it belongs before the first section");
  for (const char* section : {"[gpu]", "[GPU 0]", "[user a]", "[partition]", "[gpu 0", "[", "[]", "[ ]"}) {
    CAPTURE(section);
    CHECK(error_of(section) ==
          "x.conf:1: '" + std::string(section) +
              "' is not a section such as [gpu 0], [gpu 2,4-7], [partition long] or [qos high]");
  }
  // A byte order mark or white space before the header changes nothing.
  for (const char* before : {"\xef\xbb\xbf", " \t", "\v", "\f\r"})
    CHECK(error_of(std::string(before) + "[gpu 5]\nStateDir=/x") ==
          "x.conf:2: [gpu 5] StateDir holds for the node; it belongs before the first section");
  CHECK(error_of("[qos a,,b]") == "x.conf:1: [qos a,,b]: '' is not a name");
  CHECK(error_of("[qos a b]") == "x.conf:1: [qos a b]: 'a b' is not a name");
  CHECK(error_of("[partition " + std::string(64, 'x') + "]").ends_with("x' is not a name"));
  CHECK(error_of("[partition " + std::string(63, 'x') + "]") == "");
  CHECK(error_of("[gpu 0]\nPriority=1") ==
        "x.conf:2: [gpu 0] Priority cannot be in a section of this kind, only in partition or qos");
  CHECK(error_of("[qos a]\nPolicy=fcfs") ==
        "x.conf:2: [qos a] Policy cannot be in a section of this kind, only in gpu or partition");
  for (const char* list : {"", "x", "0,", "3-2", "-1", "1024", "0-99999999999", "GPU-12"}) {
    CAPTURE(list);
    const std::string word = std::string(list) == "0," ? "" : list;
    CHECK(error_of("[gpu " + std::string(list) + "]") ==
          "x.conf:1: [gpu " + std::string(list) + "]: '" + word +
              "' is not a GPU's number, a range of them (2-3) or a UUID (GPU-...)");
  }
}

JobClass job_of(std::string_view partition, std::string_view qos) {
  JobClass job;
  partition.copy(job.partition, JobClass::kLongest);
  qos.copy(job.qos, JobClass::kLongest);
  return job;
}

TEST_CASE("Sections for partitions and QOS") {
  Settings settings;
  REQUIRE(parse_settings("Policy=credit\nPriority=1\nMaxRequest=50%\n"
                         "[qos high]\nPriority=100\nMaxPriority=5\n"
                         "[partition long,free]\nPolicy=fcfs\nQuantum=9s\nPriority=-7\nMaxRequest=10%\n"
                         "[gpu 1]\nPolicy=elastic\n",
                         "x.conf", settings) == "");
  const auto of = [&](std::string_view partition, std::string_view qos) {
    return settings_of(settings, job_of(partition, qos));
  };
  CHECK(of("", "").priority == 1);
  CHECK(of("lon", "hig").priority == 1);
  CHECK(of("long", "").priority == -7);
  CHECK(of("free", "low").max_request == 10);
  CHECK(of("free", "high").priority == 100);  // the section of the QOS has precedence
  CHECK(of("free", "high").max_priority == 5);
  CHECK(of("free", "high").max_request == 10);
  CHECK(of("", "high").max_request == 50);

  const auto on = [&](std::uint32_t number, std::string_view partition) {
    return settings_of(settings, number, GpuUuid{}, partition);
  };
  CHECK(on(0, "").policy == "credit");
  CHECK(on(0, "long").policy == "fcfs");
  CHECK(on(0, "long").quantum == 9s);
  CHECK(on(1, "long").policy == "elastic");  // the section of the GPU has precedence
  CHECK(on(1, "long").quantum == 9s);

  CHECK(change_settings("[qos high]\nPriority=3", settings) == "");
  CHECK(of("", "high").priority == 3);
  CHECK(of("", "high").max_priority == 5);
  CHECK(change_settings("[partition long]\nMaxRequest=20%", settings) == "");
  CHECK(of("long", "").max_request == 20);
  CHECK(of("free", "").max_request == 10);
}

TEST_CASE("Some settings can be changed") {
  Settings settings;
  CHECK(change_settings("Policy=credit\nQuantum=3s\n", settings) == "");
  CHECK(change_settings("[gpu 1]\nPolicy=elastic\nQuantum=1s", settings) == "");
  CHECK(settings_of(settings, 0, {}).policy == "credit");
  CHECK(settings_of(settings, 1, {}).policy == "elastic");
  const Settings before = settings;
  CHECK(change_settings("Quantum=9s\nPolicy=best", settings).starts_with("Policy: 'best' is not a policy"));
  CHECK(change_settings("Socket=/x", settings) == "Socket cannot be changed while the arbiter runs");
  CHECK(change_settings("[gpu 1]\nSocket=/x", settings) ==
        "[gpu 1] Socket cannot be changed while the arbiter runs");
  CHECK(settings.quantum == before.quantum);
  // A later setting replaces the earlier one.
  for (int i = 0; i < 9; ++i) CHECK(change_settings("[gpu 1]\nPolicy=fcfs", settings) == "");
  CHECK(settings.sections.size() == 2);
  CHECK(settings_of(settings, 1, {}).policy == "fcfs");
  CHECK(settings_of(settings, 1, {}).quantum == 1s);
}

TEST_CASE("OnGpuLoss is nothing, or a list of what Slurm is told") {
  const auto read = [](const std::string& value) {
    Settings settings;
    const std::string error = parse_settings("OnGpuLoss=" + value + "\n", "f", settings);
    return std::pair(error, settings.on_gpu_loss);
  };
  CHECK(read("nothing") == std::pair(std::string(), GpuLossMeasures{}));
  CHECK(read("drain") == std::pair(std::string(), GpuLossMeasures{.drain = true}));
  CHECK(read("requeue") == std::pair(std::string(), GpuLossMeasures{.requeue = true}));
  CHECK(read("requeue,drain") == std::pair(std::string(), GpuLossMeasures{.drain = true, .requeue = true}));
  for (const char* bad : {"none", "drain,drain", "drain,nothing", "drain requeue"})
    CHECK(read(bad).first ==
          "f:1: OnGpuLoss: '" + std::string(bad) + "' is not nothing, drain, requeue or drain,requeue");
}

TEST_CASE("The quantum can be left to the handoffs") {
  Settings settings;
  settings.quantum = 10s;
  CHECK(parse_settings("Quantum=auto", "x.conf", settings) == "");
  CHECK(settings.quantum == 0s);
}

TEST_CASE("Errors name file, line and value") {
  CHECK(error_of("# x\nFoo=1\n") == "x.conf:2: unknown key 'Foo'");
  CHECK(error_of("quantum=1s\n") == "x.conf:1: unknown key 'quantum'; did you mean Quantum?");
  CHECK(error_of("\n\nQuantum=12 parsecs") ==
        "x.conf:3: Quantum: '12 parsecs' is not a time with a unit (such as 500ms, 10s, 2m) or auto");
  CHECK(error_of("MaxWait=auto") ==
        "x.conf:1: MaxWait: 'auto' is not a time with a unit (such as 500ms, 10s, 2m)");
  CHECK(error_of("MaxWait=99ms") == "x.conf:1: MaxWait: '99ms' is not long enough");
  for (const char* value : {"0%", "50.1%", "-1%", "0.05", "a lot", "nan%", ""}) {
    CAPTURE(value);
    CHECK(error_of("\nMaxSwapOverhead=" + std::string(value)) ==
          "x.conf:2: MaxSwapOverhead: '" + std::string(value) + "' is not a percentage from 0.1% to 50%");
  }
  CHECK(error_of("DeviceMemoryLimit=lots") ==
        "x.conf:1: DeviceMemoryLimit: 'lots' is not a size with a unit (such as 24GiB) or a percentage (such "
        "as 90%)");
  CHECK(error_of("Socket=relative") == "x.conf:1: Socket: 'relative' is not an absolute path");
  CHECK(error_of("Policy=no-such-policy") ==
        "x.conf:1: Policy: 'no-such-policy' is not a policy (round-robin, fcfs, shortest-first, credit, "
        "priority, elastic, deadline)");
  for (std::string_view policy : kPolicies) CHECK(error_of("Policy=" + std::string(policy)) == "");
  CHECK(error_of("OnNoArbiter=perhaps") == "x.conf:1: OnNoArbiter: 'perhaps' is not plain or fail");
  CHECK(error_of("PrivateData=usage") == "x.conf:1: PrivateData: 'usage' is not slurm, jobs or none");
  CHECK(error_of("NoticeAfter=yes") ==
        "x.conf:1: NoticeAfter: 'yes' is not a time with a unit (such as 500ms, 10s, 2m) or no");
  CHECK(error_of("NoticeAfter=0s") == "");
  CHECK(error_of("Summary=true") == "x.conf:1: Summary: 'true' is not yes or no");
  CHECK(error_of("Shares=all") == "x.conf:1: Shares: 'all' is not stated or units");
  CHECK(error_of("MaxRequest=0%") == "x.conf:1: MaxRequest: '0%' is not a percentage from 1% to 100%");
  for (const char* value : {"1001", "-1001", "high", "1.5", ""})
    CHECK(error_of("MaxPriority=" + std::string(value)) ==
          "x.conf:1: MaxPriority: '" + std::string(value) + "' is not a number from -1000 to 1000");
  CHECK(error_of("MaxPriority=-5") == "");
  CHECK(error_of("UnitsPerGpu=0") == "x.conf:1: UnitsPerGpu: '0' is not a number from 1 to 1024");
  CHECK(error_of("LedgerSize=1KiB") == "x.conf:1: LedgerSize: '1KiB' is not a size from 1MiB to 4GiB");
  CHECK(error_of("LedgerFiles=1") == "x.conf:1: LedgerFiles: '1' is not a number from 2 to 1000");
  CHECK(error_of("Quantum=0") == "x.conf:1: Quantum: '0' is not long enough");
  for (const char* value :
       {"10%", "much", "-1GiB", "0", "", ":1GiB", "a100:", "1GiB,2GiB", "a100:1GiB,A100:auto"})
    CHECK(error_of("SwapPerUnit=" + std::string(value)) ==
          "x.conf:1: SwapPerUnit: '" + std::string(value) +
              "' is not a size with a unit (such as 24GiB), auto, both by type (such as "
              "a100:10GiB,h100:auto), or "
              "unlimited");
  for (const char* value : {"auto", "a100:auto", "0", ""})
    CHECK(error_of("GpuMemory=" + std::string(value)) ==
          "x.conf:1: GpuMemory: '" + std::string(value) +
              "' is not a size with a unit (such as 24GiB), sizes by type (such as a100:80GiB,h200:141GiB), "
              "or unknown");
  for (const char* value : {"0", "10%", ""})
    CHECK(error_of("HostMemoryPerUnit=" + std::string(value)) ==
          "x.conf:1: HostMemoryPerUnit: '" + std::string(value) +
              "' is not a size with a unit (such as 24GiB) or none");
  for (const char* value : {"/", "", "a", "/a/", "/a//b", "/a/../b", "/./a"})
    CHECK(error_of("CgroupParent=" + std::string(value)) ==
          "x.conf:1: CgroupParent: '" + std::string(value) +
              "' is not the path of a control group below that of the host (such as /sharedgpu)");
  CHECK(error_of("DeviceMemoryLimit=0") == "x.conf:1: DeviceMemoryLimit: '0' is not greater than zero");
  CHECK(error_of("Quantum=1s\n\nPolicy=round-robin\nQuantum=2s\n") ==
        "x.conf:4: Quantum: line 1 sets it already");
  CHECK(error_of("Quantum=1s\nnonsense\n") == "x.conf:2: expected Key=Value, not 'nonsense'");
  CHECK(error_of("Quantum=1s\n" + std::string(500, 'x')).rfind("x.conf:2: line longer", 0) == 0);
  CHECK(error_of(std::string("Quantum=1s\nPolicy=\0", 19)) == "x.conf:2: a NUL character");
}

TEST_CASE("Only the first error is reported, and no setting is changed") {
  Settings settings;
  settings.quantum = 77s;
  CHECK(parse_settings("Quantum=1s\nFoo=1\nBar=2\n", "x.conf", settings) == "x.conf:2: unknown key 'Foo'");
  CHECK(settings.quantum == 77s);
}

TEST_CASE("A file that is not there") {
  Settings settings;
  CHECK(read_settings("/nonexistent/x.conf", settings) == "/nonexistent/x.conf: No such file or directory");
  CHECK(read_settings("/proc/self", settings) == "/proc/self: Is a directory");
}

}  // namespace
TEST_CASE("All errors of a file are found, and its valid lines are read") {
  const std::string path = "/tmp/sharedgpu-settings-" + std::to_string(getpid());
  std::ofstream(path) << "Quantum=never\nMaxWait=7s\nnonsense\n[gpus 0]\nPolicy=best\n[gpu 0]\nPolicy=worst\n"
                         "Socket=/x\nQuantum=3s\n";
  Settings settings;
  const Reading reading = read_in_spite_of_errors(path, settings);
  CHECK(reading.readable);
  REQUIRE(reading.errors.size() == 5);
  CHECK(reading.errors[0].starts_with(path + ":1: Quantum: 'never' is not a time"));
  CHECK(reading.errors[1] == path + ":3: expected Key=Value, not 'nonsense'");
  CHECK(reading.errors[2].starts_with(path + ":4: '[gpus 0]' is not a section"));
  CHECK(reading.errors[3].starts_with(path + ":7: [gpu 0] Policy: 'worst' is not a policy"));
  CHECK(reading.errors[4].starts_with(path + ":8: [gpu 0] Socket holds for the node"));
  CHECK(settings.max_wait == 7s);
  CHECK(settings_of(settings, 0, {}).quantum == 3s);
  std::remove(path.c_str());

  const Reading missing = read_in_spite_of_errors(path, settings);
  CHECK(!missing.readable);
  CHECK(missing.errors == std::vector<std::string>{path + ": No such file or directory"});
  CHECK(settings == Settings());
}

Settings read(const std::string& text) {
  Settings settings;
  REQUIRE(parse_settings(text, "x.conf", settings).empty());
  return settings;
}

TEST_CASE("Two files differ in values, not in the way that these are written") {
  using Names = std::vector<std::string>;
  const Settings before =
      read("Quantum=2s\nMaxWait=1m\nSocket=/a\n[gpu 0]\nPolicy=fcfs\n[qos q]\nPriority=1\n");
  const Settings same = read(
      "MaxWait=60s\n# other\nQuantum=2000ms\nLogLevel=info\nSocket=/a\n"
      "[gpu 0]\nPolicy=fcfs\n[qos q]\nPriority=1\n");
  CHECK(difference(before, same).live.empty());
  CHECK(difference(before, same).restart.empty());
  const Settings after = read("Socket=/b\nMaxWait=1m\nMps=yes\n[gpu 0]\nPolicy=credit\nQuantum=1s\n");
  CHECK(difference(before, after).live ==
        Names{"Quantum", "[gpu 0] Policy", "[gpu 0] Quantum", "[qos q] Priority"});
  CHECK(difference(before, after).restart == Names{"Socket", "Mps"});

  const Settings mixed = with_live_keys(before, after);
  CHECK(mixed.socket == "/a");
  CHECK(!mixed.mps);
  CHECK(mixed.quantum == Settings().quantum);
  CHECK(settings_of(mixed, 0, {}).policy == "credit");
  CHECK(difference(mixed, after).live.empty());
  CHECK(difference(mixed, after).restart == Names{"Socket", "Mps"});
}

TEST_CASE("Values that are not the defaults are listed as written") {
  const Settings settings = read("Quantum=auto\nMaxWait=60s\nLogLevel=debug\n[gpu 0]\nPolicy=round-robin\n");
  CHECK(chosen_values(settings) ==
        std::vector<KeyValue>{{"MaxWait", "60s"}, {"LogLevel", "debug"}, {"[gpu 0] Policy", "round-robin"}});
  CHECK(chosen_values(Settings()).empty());
}

}  // namespace sharedgpu