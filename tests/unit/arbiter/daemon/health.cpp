// SPDX-License-Identifier: Apache-2.0
// The effects of a failed GPU on tenants, ledger, status and Slurm, with an NVML that the test provides.
#include "arbiter/daemon/health.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <sstream>
#include <string>

#include "host.h"

namespace sharedgpu::test {
namespace {

using Json = nlohmann::json;

// The only GPU of the simulated NVML. The survey's child shares this memory with the test.
struct Device {
  std::atomic<int> status{0};
  std::atomic<bool> listed{true};
  std::atomic<unsigned long long> ecc_errors{0};
  std::atomic<unsigned long long> xid{0};  // the Xid that NVML reports once, at the next query
};
Device* device = nullptr;

struct Memory {
  unsigned long long total, free, used;
};
struct EventData {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

int succeed() { return 0; }
int count_of(unsigned* count) {
  *count = device->listed ? 1 : 0;
  return 0;
}
int handle_of(unsigned, void** handle) {
  *handle = device;
  return device->status;
}
int uuid_of(void*, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-01000000-0000-0000-0000-000000000000");
  return 0;
}
int minor_of(void*, unsigned* minor) {
  *minor = 0;
  return 0;
}
int memory_of(void*, Memory* memory) {
  *memory = {.total = 1u << 30, .free = 1u << 30, .used = 0};
  return device->listed ? device->status.load() : 15;
}
int processes_on(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}
int ecc_errors_of(void*, int, int, unsigned long long* count) {
  *count = device->ecc_errors;
  return 0;
}
int make_set(void** set) {
  *set = device;
  return 0;
}
int listen_to(void*, unsigned long long, void*) { return 0; }
int wait_in(void*, EventData* event, unsigned) {
  const unsigned long long xid = device->xid.exchange(0);
  if (xid == 0) return 10;
  *event = {.device = device, .type = 8, .data = xid, .gpu_instance = ~0u, .compute_instance = ~0u};
  return 0;
}

class Nvml : public System {
 public:
  Nvml() {
    void* shared = mmap(nullptr, sizeof(Device), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    device = new (shared) Device;
  }
  ~Nvml() override { munmap(device, sizeof(Device)); }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  mutable Nanoseconds ahead{};  // how far now() is ahead of the host's clock
  Nanoseconds now() const override { return System::now() + ahead; }
  void* open_library(const char* name) const override {
    return std::strcmp(name, "libnvidia-ml.so.1") == 0 ? device : nullptr;
  }
  void* symbol(void*, const char* name) const override {
    static const std::map<std::string, void*> kFunctions = {
        {"nvmlInit_v2", reinterpret_cast<void*>(succeed)},
        {"nvmlShutdown", reinterpret_cast<void*>(succeed)},
        {"nvmlDeviceGetCount_v2", reinterpret_cast<void*>(count_of)},
        {"nvmlDeviceGetHandleByIndex_v2", reinterpret_cast<void*>(handle_of)},
        {"nvmlDeviceGetUUID", reinterpret_cast<void*>(uuid_of)},
        {"nvmlDeviceGetName", reinterpret_cast<void*>(uuid_of)},
        {"nvmlDeviceGetMinorNumber", reinterpret_cast<void*>(minor_of)},
        {"nvmlDeviceGetMemoryInfo", reinterpret_cast<void*>(memory_of)},
        {"nvmlDeviceGetTotalEccErrors", reinterpret_cast<void*>(ecc_errors_of)},
        {"nvmlEventSetCreate", reinterpret_cast<void*>(make_set)},
        {"nvmlDeviceRegisterEvents", reinterpret_cast<void*>(listen_to)},
        {"nvmlEventSetFree", reinterpret_cast<void*>(succeed)},
        {"nvmlEventSetWait_v2", reinterpret_cast<void*>(wait_in)},
        {"nvmlDeviceGetComputeRunningProcesses_v3", reinterpret_cast<void*>(processes_on)}};
    const auto found = kFunctions.find(name);
    return found == kFunctions.end() ? nullptr : found->second;
  }
};

// A job with a session on the GPU.
struct Node {
  Nvml nvml;
  Host host;
  Process stepd, task;
  std::optional<Guest> slurmstepd;
  std::optional<Guest> job;

  explicit Node(const Settings& settings = {}) : host(settings, nvml) {
    host.gpus[0].minor = 0;
    host.start();
    slurmstepd.emplace(host, 0, std::nullopt, stepd.pid());
    const StepName step{.job = 12, .step = 0};
    REQUIRE(slurmstepd->say(RegisterJob{.step = step, .uid = kUser, .options = {}})
                .find<RegisterReply>()
                ->accepted == 1);
    come();
    host.run_until([&] { return gpu()["surveyed"] == true; });
  }
  void come() {
    job.emplace(host, kUser, StepName{.job = 12, .step = 0}, task.pid());
    REQUIRE(job->say(Hello{}).find<Welcome>());
    REQUIRE(job->say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = {}}).find<Attached>());
  }
  Json gpu() const { return host.status()["gpus"][0]; }
  bool is(const char* condition) const { return gpu()["condition"] == condition; }
  void becomes(const char* condition) {
    host.run_until([&] { return is(condition); });
  }
  // Returns the ledger's records of this kind.
  std::vector<std::string> ledger(const std::string& kind) const {
    std::vector<std::string> all;
    for (const std::string& line : host.ledger())
      if (line.starts_with(kind + " ")) all.push_back(line);
    return all;
  }
};

constexpr char kGpuWord[] = "01000000000000000000000000000000";
constexpr char kGpuName[] = "GPU 0 (GPU-01000000-0000-0000-0000-000000000000)";
using Lines = std::vector<std::string>;

TEST_CASE(
    "When a GPU is lost, its job gets a message, the lease ends with the reason, and the status has both") {
  Node node;
  const std::string gpu = kGpuWord;
  SECTION("by its status") { device->status = 15; }
  SECTION("by an Xid") { device->xid = 79; }
  const std::string fault = device->xid != 0 ? "Xid 79" : "lost to its driver";
  const std::string word = device->xid != 0 ? "Xid_79" : "lost_to_its_driver";
  node.becomes("lost");
  const auto reaction = node.job->hear();
  CHECK(std::string(reaction.find<Refused>().value().reason) == "the GPU is lost");
  CHECK(node.gpu()["fault"] == fault);
  const Json tenant = node.host.status()["tenants"][0];
  CHECK(tenant["lost_gpu"]["fault"] == fault);
  CHECK(tenant["lease"] == false);
  CHECK(node.ledger("gpu") == Lines{"gpu " + gpu + " 2 " + word + " -"});
  CHECK(node.ledger("loss") == Lines{"loss 1 " + gpu + " " + word});
  REQUIRE(node.ledger("release").size() == 1);
  const Lines lines = node.host.ledger();
  const auto place = [&](const std::string& line) { return std::find(lines.begin(), lines.end(), line); };
  CHECK(place(node.ledger("loss")[0]) < place(node.ledger("release")[0]));
  const Lines log = node.host.new_log_lines();
  CHECK(std::find(log.begin(), log.end(),
                  std::string("error: ") + kGpuName + " is lost: " + fault + "; tenants there: job 12") !=
        log.end());
}

TEST_CASE("A job whose process died of a loss before the arbiter noticed the loss has lost the GPU, too") {
  Node node;
  node.job->channel.close();
  node.host.run_until([&] { return !node.ledger("gone").empty(); });
  Guest other(node.host);  // surveys run only while a process is connected
  REQUIRE(other.say(Hello{}).find<Welcome>());
  device->status = 15;
  node.becomes("lost");
  CHECK(node.ledger("loss").size() == 1);
  CHECK(node.host.status()["tenants"][0]["lost_gpu"]["fault"] == "lost to its driver");
}

TEST_CASE("A GPU that is lost comes back when NVML lists it again for a while") {
  Node node;
  device->status = 15;
  SECTION("it was there all the time") {}
  SECTION("it was not listed") { device->listed = false; }
  node.becomes("lost");
  Guest other(node.host);
  REQUIRE(other.say(Hello{}).find<Welcome>());
  device->listed = true;
  device->status = 0;
  node.becomes("healthy");
  CHECK(node.gpu()["fault"] == nullptr);
  node.come();
}

TEST_CASE(
    "A job whose only process dies of a loss has lost the GPU, and its last reply counts the loss once it is "
    "known") {
  Node node;
  const auto reply = [&] { return *Guest(node.host).say(JobQuery{.job = 12}).find<JobReply>(); };
  SECTION("its status tells") { device->status = 15; }
  node.stepd.end();
  node.task.end();
  node.host.run_until([&] { return !node.ledger("gone").empty(); });
  SECTION("NVML lists it no more") { device->listed = false; }
  if (device->listed) {
    node.host.run_until([&] { return reply().lives == 0; });
    CHECK(reply().losses == 1);
  }
  node.becomes("lost");
  CHECK(reply().losses == 1);
}

TEST_CASE("A GPU that is lost again soon has to answer for longer until it is back") {
  using namespace std::chrono_literals;
  Node node;
  Guest other(node.host);
  REQUIRE(other.say(Hello{}).find<Welcome>());
  const auto wait = [&](std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    node.host.run_until([&] { return std::chrono::steady_clock::now() > end; });
  };
  const auto lose = [&] {
    device->status = 15;
    node.becomes("lost");
    device->status = 0;
    wait(300ms);  // waits until the arbiter has noticed the child's answer
  };
  lose();
  node.nvml.ahead += 2s;
  node.becomes("healthy");
  lose();
  node.nvml.ahead += 2s;
  wait(1200ms);  // the arbiter checks the GPU once more
  CHECK(node.is("lost"));
  node.nvml.ahead += 2s;
  node.becomes("healthy");
  node.nvml.ahead += 2h;
  lose();
  node.nvml.ahead += 2s;
  node.becomes("healthy");
}

TEST_CASE(
    "A job that was placed on a GPU and has no session there when the GPU is lost has lost the GPU, too") {
  Node node;
  Guest slurmstepd(node.host);
  const StepName step{.job = 13, .step = 0};
  REQUIRE(slurmstepd.say(RegisterJob{.step = step, .uid = kUser, .options = {}}).find<RegisterReply>());
  device->status = 15;
  node.becomes("lost");
  CHECK(node.ledger("loss").size() == 2);
  const Lines log = node.host.new_log_lines();
  CHECK(std::any_of(log.begin(), log.end(),
                    [](const std::string& line) { return line.ends_with("tenants there: job 12, job 13"); }));
}

TEST_CASE("The next arbiter detects a GPU that was lost while no arbiter ran, and names its tenants") {
  Node node;
  device->listed = false;
  node.host.gpus = {{.uuid = {{2}}, .total = gibibytes(1), .name = "Another GPU", .minor = 1}};
  node.host.restart();
  Guest other(node.host);  // surveys run only while a process is connected
  REQUIRE(other.say(Hello{}).find<Welcome>());
  node.host.run_until([&] { return !node.ledger("loss").empty(); });
  CHECK(node.ledger("loss") == Lines{std::string("loss 1 ") + kGpuWord + " not_in_the_host_any_more"});
  CHECK(node.host.status()["tenants"][0]["lost_gpu"]["fault"] == "not in the host any more");
}

TEST_CASE(
    "The status shows the GPU that a job has lost, also under the next arbiter, until the job runs again") {
  Node node;
  device->xid = 79;
  node.becomes("lost");
  const auto told = [&](std::uint32_t place, uid_t uid = kUser) {
    return *Guest(node.host, uid).say(GpuLossQuery{.job = 12, .place = place}).find<GpuLossReply>();
  };
  const auto losses = [&] { return Guest(node.host).say(JobQuery{.job = 12}).find<JobReply>()->losses; };
  for (int arbiter = 0; arbiter < 2; ++arbiter) {
    CHECK(losses() == 1);
    CHECK(told(0).known == 1);
    CHECK(told(0).gpu == kHostGpu);
    CHECK(std::string(told(0).fault) == "Xid 79");
    CHECK(told(1).known == 0);
    CHECK(told(0, kUser + 1).known == 0);
    node.host.restart();
  }
  node.stepd.end();
  node.task.end();
  node.host.run_until([&] { return Guest(node.host).say(JobQuery{.job = 12}).find<JobReply>()->lives == 0; });
  Guest next(node.host);
  REQUIRE(next.say(EndJob{.job = 12}).find<EndJobReply>()->accepted == 1);
  const StepName step{.job = 12, .step = 0};
  REQUIRE(next.say(RegisterJob{.step = step, .uid = kUser, .options = {}}).find<RegisterReply>());
  CHECK(losses() == 0);
  CHECK(node.host.status()["tenants"][0]["lost_gpu"] == nullptr);
  node.host.restart();
  CHECK(losses() == 0);
}

TEST_CASE("A GPU that NVML no longer lists is lost") {
  Node node;
  device->listed = false;
  node.becomes("lost");
}

TEST_CASE("A failing GPU keeps its job, and the next arbiter knows that the GPU is failing") {
  Node node;
  const auto fails_with = [&](const char* fault) {
    node.becomes("failing");
    CHECK(node.gpu()["fault"] == fault);
    CHECK(node.job->hear().closed == false);
    node.host.restart();
    CHECK(node.is("failing"));
    Guest administrator(node.host);
    CHECK(administrator.say(DrainGpus{.drained = 0, .gpus = "0"}).find<DrainReply>()->done == 1);
    CHECK(node.is("healthy"));
  };
  SECTION("a grave Xid") {
    device->xid = 48;
    fails_with("Xid 48");
  }
  SECTION("an ECC error") {
    device->ecc_errors = 2;
    fails_with("ECC error");
  }
}

TEST_CASE("Tenants are placed again on a GPU that was reset") {
  Node node;
  SECTION("it needed one") {
    device->status = 16;
    node.becomes("failing");
    CHECK(node.gpu()["fault"] == "reset required");
    device->status = 0;
  }
  SECTION("its ECC errors are gone") {
    device->ecc_errors = 3;
    node.becomes("failing");
    device->ecc_errors = 0;
  }
  node.becomes("healthy");
}

TEST_CASE("If only the driver lists a GPU, its condition does not change") {
  Node node;
  device->status = static_cast<int>(kNvmlResetRequired);
  node.becomes("failing");
  node.host.gpus[0].minor.reset();  // only NVML reports minor numbers
  node.host.restart();
  CHECK(node.is("failing"));
}

TEST_CASE("An Xid of a program changes nothing") {
  Node node;
  device->xid = 13;
  node.host.run_until([] { return device->xid == 0; });
  node.host.run();
  CHECK(node.is("healthy"));
}

TEST_CASE("A drain of a GPU, and its end, survive a restart of the arbiter") {
  Node node;
  Guest administrator(node.host);
  const auto say = [&](bool drained, const char* gpus, const char* reason) {
    DrainGpus message{.drained = drained};
    std::strcpy(message.gpus, gpus);
    std::strcpy(message.reason, reason);
    return Guest(node.host).say(message);
  };
  CHECK(say(true, "0", "the fan\tis\nreplaced").find<DrainReply>()->done == 1);
  CHECK(node.gpu()["drain_reason"] == "the fan is replaced");
  node.host.restart();
  CHECK(node.gpu()["drained"] == true);
  CHECK(node.gpu()["drain_reason"] == "the fan is replaced");
  CHECK(say(false, "GPU-01000000-0000-0000-0000-000000000000", "").find<DrainReply>()->done == 1);
  CHECK(node.gpu()["drained"] == false);
  for (const char* none : {"", "-"}) {
    CHECK(say(true, "0", none).find<DrainReply>()->done == 1);
    CHECK(node.gpu()["drain_reason"] == "drained");
  }
  node.host.restart();
  CHECK(node.gpu()["drained"] == true);
  CHECK(std::string(say(true, "7", "").find<Refused>()->reason) == "no GPU 7 here");
  CHECK(std::string(say(true, "", "").find<Refused>()->reason).find("is not a GPU's number") !=
        std::string::npos);
}

TEST_CASE("OnGpuLoss: Slurm is told to drain the node and to requeue the job") {
  TemporaryFolder folder;
  for (const char* name : {"/scontrol", "/squeue"}) {
    const std::string file = folder.path + name;
    std::ofstream(file) << "#!/bin/bash\necho \"$@\" >>" + folder.path + "/calls\n";
    chmod(file.c_str(), 0755);
  }
  const std::string path = std::getenv("PATH");
  setenv("PATH", (folder.path + ":" + path).c_str(), 1);
  const auto calls = [&] {
    std::stringstream text;
    text << std::ifstream(folder.path + "/calls").rdbuf();
    return text.str();
  };
  Settings settings;
  std::string expected;
  SECTION("both") {
    settings.on_gpu_loss = {.drain = true, .requeue = true};
    expected = std::string("update nodename=n0 state=DRAIN reason=sharedgpu: ") + kGpuName +
               " is lost: lost to its driver\n-h -a -t all -j 12 -o %A %F_%K\n-o show job 12\nrequeue 12\n";
  }
  SECTION("nothing") {}
  Node node(settings);
  device->status = 15;
  node.becomes("lost");
  node.host.run_until([&] { return calls().size() >= expected.size(); });
  CHECK(calls() == expected);
  setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace sharedgpu::test
