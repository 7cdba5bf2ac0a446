// SPDX-License-Identifier: Apache-2.0
// Tests which processes belong to a tenant, when a tenant ends, and when a new tenant begins.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "arbiter/daemon/placements.h"
#include "host.h"
#include "protocol/step_names.h"

namespace sharedgpu::test {
namespace {

RegisterJob registration(std::uint32_t number, std::uint32_t step, std::uint64_t restarts = 0) {
  RegisterJob job{.step = {.job = number, .step = step}, .uid = kUser, .options = {}};
  std::strcpy(job.job_class.partition, "batch");
  job.job_class.restarts = restarts;
  return job;
}

Attach attach() { return {.gpu = kHostGpu, .total = gibibytes(1), .name = {}}; }

JobReply ask(Host& host, std::uint32_t number, uid_t uid = 0) {
  Guest guest(host, uid);
  return *guest.say(JobQuery{.job = number}).find<JobReply>();
}

std::vector<std::string> kinds(const std::vector<std::string>& records) {
  std::vector<std::string> all;
  for (const std::string& record : records) all.push_back(record.substr(0, record.find(' ')));
  return all;
}

bool has(const std::vector<std::string>& records, const std::string& record) {
  return std::find(records.begin(), records.end(), record) != records.end();
}

TEST_CASE("A run lasts as long as its connection or a session of it") {
  Host host;
  host.start();
  Process child;
  Guest command(host, kUser), session(host, kUser, {}, child.pid());
  const RunReply run = *command.say(RunRequest{}).find<RunReply>();
  Hello hello;
  hello.token = run.token;
  CHECK(session.say(hello).find<Welcome>()->tenant == run.tenant);
  command.channel.close();
  host.run();
  CHECK(host.status()["tenants"].size() == 1);
  child.end();
  host.run_until([&] { return host.status()["tenants"].empty(); });
  CHECK(host.ledger().back() == "end 1");
  // The run has ended, so its token is invalid.
  Guest late(host, kUser);
  CHECK(late.say(hello).find<Welcome>()->tenant != run.tenant);
}

TEST_CASE("A process with the token of another user's run does not become a member of the run") {
  Host host;
  host.start();
  Guest command(host, kUser);
  const RunReply run = *command.say(RunRequest{}).find<RunReply>();
  Hello hello;
  hello.token = run.token;
  Guest stranger(host, kUser + 1);
  CHECK(stranger.say(hello).find<Welcome>()->tenant != run.tenant);
  CHECK(host.new_log_lines() ==
        std::vector<std::string>{"warning: pid N: its run token is unknown or another user's"});
  Guest own(host, kUser);
  CHECK(own.say(hello).find<Welcome>()->tenant == run.tenant);
}

TEST_CASE("A process in a job's cgroup that runs as another user is not of the job, but root's is") {
  Host host;
  host.start();
  Guest slurmstepd(host);
  REQUIRE(slurmstepd.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
  const StepName step{.job = 12, .step = 0};
  Guest own(host, kUser, step), stranger(host, kUser + 1, step), root(host, 0, step);
  const TenantId job = own.say(Hello{}).find<Welcome>()->tenant;
  CHECK(job == TenantId{1});
  CHECK(stranger.say(Hello{}).find<Welcome>()->tenant != job);
  CHECK(root.say(Hello{}).find<Welcome>()->tenant == job);
}

Settings jobs_only() {
  Settings settings;
  settings.tenants = TenantKind::jobs;
  return settings;
}

std::string refusal_of(Host& host, Guest guest, const Message& message) {
  const Guest::Reaction reaction = guest.say(message);
  CHECK(reaction.closed);
  CHECK(host.status()["tenants"].empty());
  return reaction.find<Refused>().value_or(Refused{}).reason;
}

TEST_CASE("With Tenants=jobs a process is served in a registered job alone") {
  Host host(jobs_only());
  host.start();
  const StepName step{.job = 12, .step = 0};
  const std::string not_here =
      "the GPUs here are for jobs, and for runs that an administrator starts for a user (Tenants=jobs)";
  CHECK(refusal_of(host, Guest(host, kUser), Message::of(Hello{})) == not_here);
  CHECK(refusal_of(host, Guest(host, 0), Message::of(Hello{})) == not_here);
  CHECK(refusal_of(host, Guest(host, kUser), Message::of(RunRequest{})) == not_here);
  CHECK(refusal_of(host, Guest(host, kUser, step), Message::of(Hello{})) ==
        "job 12 holds no units of these GPUs here");
  CHECK(host.ledger().size() == 1);  // only the record of the arbiter's start
  Guest slurmstepd(host);
  REQUIRE(slurmstepd.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
  Guest own(host, kUser, step), another(host, kUser, step), run(host, kUser, step),
      stranger(host, kUser + 1, step);
  CHECK(own.say(Hello{}).find<Welcome>()->tenant == TenantId{1});
  CHECK(another.say(Hello{}).find<Welcome>()->tenant == TenantId{1});
  CHECK(run.say(RunRequest{}).find<RunReply>());
  CHECK(stranger.say(Hello{}).find<Refused>());
  host.restart();
  Guest again(host, kUser, step);
  CHECK(again.say(Hello{}).find<Welcome>()->tenant == TenantId{1});
}

TEST_CASE("With Tenants=jobs the sessions of a job may reconnect to an arbiter whose ledger is lost") {
  FaultySystem system;
  system.time = std::chrono::seconds(1000);
  Host host(jobs_only(), system);
  host.start();
  const StepName step{.job = 12, .step = 0};
  Hello hello;
  hello.resuming = 1;
  Guest one(host, kUser, step), other(host, kUser, step), outside(host, kUser), young(host, kUser, step);
  CHECK(one.say(hello).find<Welcome>()->tenant == TenantId{1});
  CHECK(other.say(hello).find<Welcome>()->tenant == TenantId{1});
  CHECK(outside.say(hello).find<Refused>());
  CHECK(young.say(Hello{}).find<Refused>());
  *system.time += std::chrono::minutes(1);
  Guest late(host, kUser, step);
  CHECK(late.say(hello).find<Refused>());
  host.restart();
  Guest of_another(host, kUser, StepName{.job = 13, .step = 0});
  CHECK(of_another.say(hello).find<Refused>());  // refused, since the arbiter has a ledger
}

TEST_CASE("With Tenants=jobs a run is one that an administrator vouched for") {
  Host host(jobs_only());
  host.start();
  RunRequest request;
  request.vouched = 1;
  request.uid = kUser;
  Guest command(host);
  Hello hello;
  hello.token = command.say(request).find<RunReply>()->token;
  Guest session(host, kUser), other(host, kUser + 1);
  CHECK(session.say(hello).find<Welcome>());
  CHECK(other.say(hello).find<Refused>());
}

TEST_CASE("A session of another user than its job's is dropped when Slurm says whose the job is") {
  Host host;
  host.start();
  const StepName step{.job = 12, .step = 0};
  Guest stranger(host, kUser + 1, step), root(host, 0, step);
  REQUIRE(stranger.say(Hello{}).find<Welcome>());
  REQUIRE(stranger.say(attach()).find<Attached>());
  MemoryUse use{};
  use.swappable = use.resident = mebibytes(10);
  REQUIRE(stranger.say(Usage{.request = 1, .use = use}).find<Verdict>());
  REQUIRE(root.say(Hello{}).find<Welcome>());
  Guest slurmstepd(host);
  REQUIRE(slurmstepd.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
  Guest::Reaction dropped;
  host.run_until([&] {
    const Guest::Reaction more = stranger.hear();
    dropped.answers.insert(dropped.answers.end(), more.answers.begin(), more.answers.end());
    return more.closed;
  });
  REQUIRE(dropped.find<Refused>());
  CHECK(std::string(dropped.find<Refused>()->reason) == "job 12 belongs to another user");
  CHECK_FALSE(root.hear().closed);
  CHECK(host.status()["tenants"][0]["sessions"].size() == 1);
  Guest later(host, kUser + 1, step);
  CHECK(later.say(Hello{}).find<Welcome>()->tenant != TenantId{1});
}

TEST_CASE("A session may connect before its job is registered, and the arbiter then knows the job") {
  Host host;
  host.start();
  Guest session(host, kUser + 1, StepName{.job = 12, .step = 0});
  const TenantId tenant = session.say(Hello{}).find<Welcome>()->tenant;
  CHECK(ask(host, 12, kUser).known == 0);
  CHECK(ask(host, 12, kUser + 1).known == 1);
  Guest slurmstepd(host);
  REQUIRE(slurmstepd.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
  CHECK(ask(host, 12, kUser).known == 1);  // Slurm has told the arbiter the job's user
  CHECK(ask(host, 12, kUser + 1).known == 0);
  Guest other(host, kUser, StepName{.job = 12, .step = 0});
  CHECK(other.say(Hello{}).find<Welcome>()->tenant == tenant);
}

TEST_CASE("Only a job's user and administrators get data about the job") {
  Host host;
  host.start();
  Guest slurmstepd(host);
  REQUIRE(slurmstepd.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
  CHECK(ask(host, 12, kUser).known == 1);
  CHECK(ask(host, 12, 0).known == 1);
  CHECK(ask(host, 12, kUser + 1).known == 0);
  CHECK(ask(host, 0).known == 0);
  CHECK(ask(host, 13).known == 0);
}

TEST_CASE("A job lasts as long as one of its sessions, or a process that registered it") {
  Host host;
  host.start();
  Process stepd, task;
  Guest slurmstepd(host, 0, {}, stepd.pid());
  REQUIRE(slurmstepd.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
  CHECK(ask(host, 12).lives == 1);
  CHECK(host.status()["gpus"][0]["units"] == 1);
  Guest session(host, kUser, StepName{.job = 12, .step = 0}, task.pid());
  REQUIRE(session.say(Hello{}).find<Welcome>());
  stepd.end();
  host.run();
  CHECK(ask(host, 12).lives == 1);
  task.end();
  host.run_until([&] { return ask(host, 12).lives == 0; });
  CHECK(host.status()["gpus"][0]["units"] == 0);
  CHECK(ask(host, 12).known == 1);  // the arbiter keeps the job, since the job may have another step
}

// A job whose batch step has run a task on this host. The task has ended, and the slurmstepd of the step
// lives until end_stepd().
struct Requeued {
  Host host;
  Process stepd, task;

  Requeued() {
    host.start();
    work(kBatchStep, stepd, task);
  }
  // The step starts, uses memory, and its task ends.
  void work(std::uint32_t step, Process& parent, Process& child) {
    Guest slurmstepd(host, 0, {}, parent.pid());
    REQUIRE(slurmstepd.say(registration(12, step)).find<RegisterReply>()->accepted == 1);
    Guest session(host, kUser, StepName{.job = 12, .step = step}, child.pid());
    REQUIRE(session.say(Hello{}).find<Welcome>());
    REQUIRE(session.say(attach()).find<Attached>());
    MemoryUse use{};
    use.swappable = use.resident = mebibytes(10);
    REQUIRE(session.say(Usage{.request = 1, .use = use}).find<Verdict>());
    child.end();
    host.run_until([&] { return host.status()["tenants"][0]["sessions"].empty(); });
    REQUIRE(ask(host, 12).footprint == mebibytes(10));
  }
  void end_stepd() {
    stepd.end();
    host.run_until([&] { return ask(host, 12).lives == 0; });
  }
  bool begins_with(std::uint32_t step, std::uint64_t restarts) {
    Guest slurmstepd(host);
    REQUIRE(slurmstepd.say(registration(12, step, restarts)).find<RegisterReply>()->accepted == 1);
    const bool begun = has(host.ledger(), "begin 1");
    CHECK(ask(host, 12).footprint == (begun ? Bytes{} : mebibytes(10)));
    CHECK((ask(host, 12).lease == Nanoseconds{}) == begun);
    return begun;
  }
};

TEST_CASE("A requeued job begins anew") {
  Requeued job;
  job.end_stepd();
  SECTION("as its batch step shows") { CHECK(job.begins_with(kBatchStep, 0)); }
  SECTION("as the number of its restarts shows") { CHECK(job.begins_with(0, 1)); }
  SECTION("as the epilog has told") {
    Guest epilog(job.host);
    REQUIRE(epilog.say(EndJob{.job = 12}).find<EndJobReply>()->accepted == 1);
    CHECK(has(job.host.ledger(), "over 1"));
    CHECK(job.begins_with(0, 0));
  }
}

TEST_CASE("After an epilog, only the first step begins a new run") {
  Requeued job;
  job.end_stepd();
  REQUIRE(Guest(job.host).say(EndJob{.job = 12}).find<EndJobReply>()->accepted == 1);
  Process stepd, task;
  job.work(0, stepd, task);
  stepd.end();
  job.host.run_until([&] { return ask(job.host, 12).lives == 0; });
  const auto begun = [&] {
    const std::vector<std::string> records = job.host.ledger();
    return std::count(records.begin(), records.end(), "begin 1");
  };
  CHECK(begun() == 1);
  Guest slurmstepd(job.host);
  REQUIRE(slurmstepd.say(registration(12, 1)).find<RegisterReply>()->accepted == 1);
  CHECK(begun() == 1);
  CHECK(ask(job.host, 12).footprint == mebibytes(10));
}

TEST_CASE("A further step of a job begins nothing anew, nor does any while the job lives") {
  Requeued job;
  SECTION("a further step") {
    job.end_stepd();
    CHECK_FALSE(job.begins_with(0, 0));
  }
  SECTION("a batch step while a process of the job lives") { CHECK_FALSE(job.begins_with(kBatchStep, 0)); }
}

TEST_CASE("The data of a job is recorded once") {
  Host host;
  host.start();
  Guest slurmstepd(host);
  RegisterJob job = registration(12, kBatchStep);
  job.options.units = 3;
  REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  CHECK(kinds(host.ledger()) == std::vector<std::string>{"boot", "tenant", "options", "class", "place"});
  REQUIRE(slurmstepd.say(EndJob{.job = 12}).find<EndJobReply>()->accepted == 1);
  CHECK(host.ledger().back() == "over 1");
  REQUIRE(slurmstepd.say(EndJob{.job = 13}).find<EndJobReply>()->accepted == 1);  // no such job
  CHECK(host.ledger().size() == 6);
}

TEST_CASE(
    "The record of a job is written again when the job comes again, but not while a process of the job "
    "lives") {
  Host host;
  host.start();
  const auto written = [&host] {
    const std::vector<std::string> all = kinds(host.ledger());
    return std::count(all.begin(), all.end(), "tenant");
  };
  const auto come = [&host](std::uint32_t step) {
    Guest slurmstepd(host);
    REQUIRE(slurmstepd.say(registration(12, step)).find<RegisterReply>()->accepted == 1);
  };
  come(0);
  REQUIRE(written() == 1);
  come(1);
  CHECK(written() == 2);  // the record is written again, since a checkpoint may have left it out
  Guest session(host, kUser, StepName{.job = 12, .step = 1});
  REQUIRE(session.say(Hello{}).find<Welcome>());
  REQUIRE(written() == 3);
  come(2);
  CHECK(written() == 3);
}

TEST_CASE("A tenant survives a restart of the arbiter if its processes do") {
  Host host;
  host.start();
  Process stepd, command;
  {
    Guest slurmstepd(host, 0, {}, stepd.pid()), run(host, kUser, {}, command.pid());
    REQUIRE(slurmstepd.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
    REQUIRE(run.say(RunRequest{}).find<RunReply>());
  }
  host.restart();
  CHECK(host.status()["gpus"][0]["units"] == 2);
  CHECK(host.status()["tenants"].size() == 2);
  command.end();
  host.run_until([&] { return host.status()["tenants"].size() == 1; });
  CHECK(host.ledger().back() == "end 2");
  stepd.end();
  host.run_until([&] { return host.status()["gpus"][0]["units"] == 0; });
  CHECK(ask(host, 12).known == 1);
}

TEST_CASE("Tenants survive a restart of an arbiter that lacks descriptors") {
  FaultySystem system;
  Host host({}, system);
  host.start();
  Process command, other;
  {
    Guest run(host, kUser, {}, command.pid()), another(host, kUser, {}, other.pid());
    REQUIRE(run.say(RunRequest{}).find<RunReply>());
    REQUIRE(another.say(RunRequest{}).find<RunReply>());
  }
  SECTION("of any kind") {
    system.reading = [](const std::string& path) { return path.ends_with("/stat") ? EMFILE : 0; };
  }
  SECTION("for processes alone") {}
  system.processes = EMFILE;
  host.restart();
  CHECK(host.status()["tenants"].size() == 2);
  system.processes = 0;
  system.reading = [](const std::string&) { return 0; };
  other.end();
  host.run_until([&] { return host.status()["tenants"].size() == 1; });
  command.end();
  host.run_until([&] { return host.status()["tenants"].empty(); });
}

TEST_CASE("A tenant lasts as long as one of the processes that an arbiter without descriptors looks for") {
  FaultySystem system;
  Host host({}, system);
  host.start();
  Process first, second;
  {
    Guest one(host, 0, {}, first.pid()), other(host, 0, {}, second.pid());
    REQUIRE(one.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
    REQUIRE(other.say(registration(12, 1)).find<RegisterReply>()->accepted == 1);
  }
  system.processes = EMFILE;
  host.restart();
  system.processes = 0;
  first.end();
  const auto looked = std::chrono::steady_clock::now() + std::chrono::milliseconds(1200);
  host.run_until([&] { return std::chrono::steady_clock::now() > looked; });
  CHECK(host.status()["gpus"][0]["units"] == 1);
  second.end();
  host.run_until([&] { return host.status()["gpus"][0]["units"] == 0; });
}

// Lets the arbiter notice ended processes.
void notice_deaths(Host& host) {
  int looks = 0;
  host.run_until([&] { return ++looks == 3; });
}

// A host with two GPUs, which have the device files 4 and 5.
struct TwoGpus : Host {
  explicit TwoGpus(const Settings& changes = {}, const System& its = kHostSystem) : Host(changes, its) {
    gpus = {{.uuid = kHostGpu, .total = gibibytes(1), .name = "First", .minor = 4},
            {.uuid = kSecondGpu, .total = gibibytes(2), .name = "Second", .minor = 5}};
    start();
  }
  std::vector<unsigned> units() const {
    std::vector<unsigned> all;
    const nlohmann::json now = status();
    for (const auto& gpu : now["gpus"]) all.push_back(gpu["units"]);
    return all;
  }
  static constexpr GpuUuid kSecondGpu{{2}};
};
using Units = std::vector<unsigned>;

RegisterJob on_two_gpus(std::uint32_t number, std::uint32_t units) {
  RegisterJob job = registration(number, 0);
  job.options.gpus = 2;
  job.options.units = units;
  return job;
}

TEST_CASE("A placement on several GPUs survives a restart, and ends on all of them at once") {
  TwoGpus host;
  Process stepd;
  {
    Guest slurmstepd(host, 0, {}, stepd.pid());
    const RegisterReply reply = *slurmstepd.say(on_two_gpus(12, 6)).find<RegisterReply>();
    REQUIRE(reply.gpus.count == 2);
    CHECK(reply.gpus.gpu[0] == kHostGpu);
    CHECK(reply.gpus.gpu[1] == TwoGpus::kSecondGpu);
    CHECK(reply.gpus.known == 2);
  }
  CHECK(host.units() == Units{3, 3});
  host.restart();
  CHECK(host.units() == Units{3, 3});
  CHECK(host.status()["tenants"][0]["placed"].size() == 2);
  stepd.end();
  host.run_until([&] { return host.units() == Units{0, 0}; });
  CHECK(ask(host, 12).lives == 0);
}

TEST_CASE("A placement ends with the last of the processes that hold it, also after a restart") {
  TwoGpus host;
  Process first, second;
  for (const Process* each : {&first, &second}) {
    Guest slurmstepd(host, 0, {}, each->pid());
    REQUIRE(slurmstepd.say(on_two_gpus(12, 2)).find<RegisterReply>()->accepted == 1);
  }
  SECTION("under one arbiter") {}
  SECTION("after a restart") { host.restart(); }
  first.end();
  notice_deaths(host);
  CHECK(host.units() == Units{1, 1});
  second.end();
  host.run_until([&] { return host.units() == Units{0, 0}; });
}

TEST_CASE("A step sees the GPUs that it holds whole before the shared ones") {
  TwoGpus host;
  Guest slurmstepd(host);
  RegisterJob job = registration(12, 0);
  job.devices.bits = 1 << 4;
  job.whole.bits = 1 << 5;
  const RegisterReply reply = *slurmstepd.say(job).find<RegisterReply>();
  CHECK(reply.whole == 1);
  REQUIRE(reply.gpus.count == 2);
  CHECK(reply.gpus.gpu[0] == TwoGpus::kSecondGpu);
  CHECK(reply.gpus.gpu[1] == kHostGpu);
  // The step has no units on the GPU that it holds whole.
  CHECK(host.units() == Units{1, 0});
  job.whole.bits = 1 << 6 | 1 << 5;  // the host has no device file 6
  const RegisterReply unknown = *slurmstepd.say(job).find<RegisterReply>();
  CHECK(unknown.whole == 0);
  CHECK(unknown.gpus.count == 1);
}

TEST_CASE("GPUs that are held whole come in the host's order, each once, and leave room for a shared one") {
  Snapshot state;
  for (unsigned number = 0; number < 14; ++number) {
    Snapshot::Gpu& gpu = state.gpus.emplace_back();
    gpu.uuid.bytes[0] = static_cast<std::uint8_t>(number + 1);
    gpu.number = 13 - number;
    if (number != 5) gpu.minor = number;
  }
  const auto list = [](std::initializer_list<std::uint8_t> ids) {
    GpuList gpus;
    for (const std::uint8_t id : ids) gpus.gpu[gpus.count++].bytes[0] = id;
    return gpus;
  };
  const auto ids = [](const GpuList& gpus) {
    std::vector<unsigned> all;
    for (std::uint32_t i = 0; i < gpus.count; ++i) all.push_back(gpus.gpu[i].bytes[0]);
    return all;
  };
  GpuList gpus = list({9, 2});
  gpus.known = 7;
  CHECK(put_before(state, {.bits = 0b1011}, gpus) == 3);
  CHECK(ids(gpus) == std::vector<unsigned>{4, 2, 1, 9});
  CHECK(gpus.known == 7);
  GpuList none;
  CHECK(put_before(state, {.bits = 0b1011}, none) == 0);
  CHECK(none.count == 0);
  gpus = list({14});
  CHECK(put_before(state, {.bits = 0b100001}, gpus) == 0);         // one of the GPUs has no device number
  CHECK(put_before(state, {.bits = 0b1111111011111}, gpus) == 0);  // the list has no room for more GPUs
  CHECK(ids(gpus) == std::vector<unsigned>{14});
  CHECK(put_before(state, {.bits = 0b111111011111}, gpus) == 11);
  CHECK(gpus.count == 12);
}

TEST_CASE("A job that can open no GPU is not placed, and the log says so") {
  TwoGpus host;
  Guest slurmstepd(host);
  RegisterJob job = registration(12, 0);
  job.devices.bits = 1 << 9;
  CHECK(slurmstepd.say(job).find<RegisterReply>()->gpus.count == 0);
  CHECK(host.units() == Units{0, 0});
  CHECK(host.new_log_lines() ==
        std::vector<std::string>{"warning: job 12: not placed: it can open none of the GPUs here"});
}

TEST_CASE(
    "A run whose user chose the GPUs is placed nowhere, and lasts as long as its process all the same") {
  Host host;
  host.start();
  Process command;
  RunRequest request;
  request.chosen = 1;
  {
    Guest run(host, kUser, {}, command.pid());
    CHECK(run.say(request).find<RunReply>()->gpus.count == 0);
  }
  CHECK(host.status()["gpus"][0]["units"] == 0);
  CHECK(host.ledger().back().rfind("place 1 " + std::to_string(command.pid()) + " ", 0) == 0);
  const std::string end = "end 1";
  host.restart();
  CHECK_FALSE(has(host.ledger(), end));
  command.end();
  host.run_until([&] { return has(host.ledger(), end); });
}

TEST_CASE("A placement stays while there is a session, even if no process that requested it lives") {
  Host host;
  host.start();
  Process stepd, task;
  Guest slurmstepd(host, 0, {}, stepd.pid());
  REQUIRE(slurmstepd.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
  Guest session(host, kUser, StepName{.job = 12, .step = 0}, task.pid());
  REQUIRE(session.say(Hello{}).find<Welcome>());
  stepd.end();
  notice_deaths(host);
  CHECK(host.status()["gpus"][0]["units"] == 1);
}

TEST_CASE("A fact about a job is written to the ledger again only if it has changed") {
  Host host;
  host.start();
  Guest slurmstepd(host);
  RegisterJob job = registration(12, 0);
  const auto written = [&](const std::string& kind) {
    const std::vector<std::string> all = kinds(host.ledger());
    return std::count(all.begin(), all.end(), kind);
  };
  for (int i = 0; i < 2; ++i) REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  CHECK(written("class") == 1);
  std::strcpy(job.job_class.qos, "high");
  REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  CHECK(written("class") == 2);
  job.job_class = {};  // this registration does not state the class
  REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  CHECK(written("class") == 2);
  CHECK(written("options") == 4);
  job.element = {.array = 11, .index = 1};
  for (int i = 0; i < 2; ++i) REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  CHECK(written("class") == 3);
  host.restart();
  CHECK(host.status()["tenants"][0]["array_job"] == 11);
  CHECK(host.status()["tenants"][0]["array_index"] == 1);
  Guest other(host, kUser);
  CHECK(host.status()["tenants"][0]["qos"] == "high");
}

TEST_CASE("The ledger records the user that Slurm states for a job") {
  Host host;
  host.start();
  Guest session(host, kUser + 1, StepName{.job = 12, .step = 0});
  REQUIRE(session.say(Hello{}).find<Welcome>());
  Guest slurmstepd(host);
  REQUIRE(slurmstepd.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
  CHECK(has(host.ledger(), "tenant 1 " + std::to_string(kUser) + " job 12"));
}

TEST_CASE("The log names a process that is in a job of another user") {
  Host host;
  host.start();
  Guest slurmstepd(host);
  REQUIRE(slurmstepd.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
  Guest stranger(host, kUser + 1, StepName{.job = 12, .step = 0});
  REQUIRE(stranger.say(Hello{}).find<Welcome>());
  CHECK(host.new_log_lines() == std::vector<std::string>{"warning: pid N: in job 12, but of another user"});
}

TEST_CASE(
    "A job of which nothing lives is forgotten a week after it was heard of last, and begins anew after "
    "that") {
  using namespace std::chrono_literals;
  FaultySystem system;
  system.time = kHostSystem.now();
  Host host({}, system);
  host.start();
  const auto come = [&](std::uint32_t number) {  // registers a step; the job does not end
    Guest slurmstepd(host);
    REQUIRE(slurmstepd.say(registration(number, 0)).find<RegisterReply>()->accepted == 1);
  };
  come(13);
  {
    Process task;
    Guest session(host, kUser, StepName{.job = 14, .step = 0}, task.pid());
    REQUIRE(session.say(Hello{}).find<Welcome>());
    task.end();
    host.run_until([&] { return ask(host, 14).lives == 0; });
  }
  *system.time += 24h * 6;
  come(20);
  CHECK(ask(host, 14).known == 1);
  *system.time += 24h + 1h;
  come(21);
  CHECK(ask(host, 14).known == 0);
  CHECK(ask(host, 13).known == 1);
  CHECK(ask(host, 20).known == 1);
  CHECK(has(host.ledger(), "end 2"));
  host.restart();
  CHECK(ask(host, 14).known == 0);
  CHECK(ask(host, 13).known == 1);
  come(14);
  CHECK(ask(host, 14).known == 1);
  CHECK(ask(host, 14).lease == Nanoseconds{});
  CHECK(has(host.ledger(), "tenant 5 " + std::to_string(kUser) + " job 14"));
}

TEST_CASE("The number of known jobs is limited: the oldest jobs without a living process are forgotten") {
  TwoGpus host;
  Process stepd;
  const auto come = [&](std::uint32_t number, Guest& slurmstepd, std::uint64_t devices) {
    RegisterJob job = registration(number, 0);
    job.devices.bits = devices;
    REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  };
  Guest living(host, 0, {}, stepd.pid());
  come(1, living, 1 << 4);
  Guest others(host);
  const auto count = static_cast<std::uint32_t>(Jobs::kMostKnown);
  // The host has no GPU of the number 9, so these jobs are placed on none.
  for (std::uint32_t number = 2; number <= count; ++number) come(number, others, 1 << 9);
  CHECK(ask(host, 2).known == 1);
  come(count + 1, others, 1 << 9);
  const auto check = [&] {
    CHECK(ask(host, 1).known == 1);
    CHECK(ask(host, 2).known == 0);
    CHECK(ask(host, count / 10 + 1).known == 0);
    CHECK(ask(host, count / 10 + 2).known == 1);
    CHECK(ask(host, count + 1).known == 1);
  };
  check();
  host.restart();
  check();
}

TEST_CASE("A run of a job states its own options, not those of the run before") {
  Host host;
  host.start();
  RegisterJob job = registration(12, 0);
  job.options.units = 2;
  job.options.memory = mebibytes(100);
  {
    Process stepd;
    Guest slurmstepd(host, 0, {}, stepd.pid());
    REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  }
  host.run_until([&] { return ask(host, 12).lives == 0; });
  REQUIRE(Guest(host).say(EndJob{.job = 12}).find<EndJobReply>()->accepted == 1);
  SECTION("under one arbiter") {}
  SECTION("after a restart") { host.restart(); }
  job.options = {};
  job.options.units = 1;
  Guest slurmstepd(host);
  REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  const std::vector<std::string> records = host.ledger();
  const auto options = std::find_if(records.rbegin(), records.rend(),
                                    [](const std::string& each) { return each.rfind("options ", 0) == 0; });
  REQUIRE(options != records.rend());
  CHECK(options->rfind("options 1 0 1 ", 0) == 0);  // no memory limit, one unit
}

TEST_CASE("A job that is about to be stopped gives up its lease, and has it again when it is resumed") {
  Host host;
  host.start();
  Guest slurmstepd(host), session(host, kUser, StepName{.job = 12, .step = 0});
  REQUIRE(slurmstepd.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
  REQUIRE(session.say(Hello{}).find<Welcome>());
  REQUIRE(session.say(attach()).find<Attached>());
  MemoryUse use{};
  use.swappable = use.resident = mebibytes(10);
  REQUIRE(session.say(Usage{.request = 1, .use = use}).find<Verdict>());
  const auto is_open = [&] { return host.status()["tenants"][0]["sessions"][0]["gate_open"] == true; };
  REQUIRE(is_open());
  SuspendJob suspend{.step = {.job = 13, .step = 0}, .suspended = 1};
  CHECK(slurmstepd.say(suspend).find<SuspendReply>()->accepted == 1);
  CHECK(is_open());  // the message is about another job
  suspend.step.job = 12;
  CHECK(slurmstepd.say(suspend).find<SuspendReply>()->accepted == 1);
  CHECK_FALSE(is_open());
  const auto revoke = session.hear().find<Revoke>();
  REQUIRE(revoke);
  session.say(
      Released{.epoch = revoke->epoch, .order = revoke->order, .wants = 1, .overuse = {}, .use = use});
  CHECK_FALSE(is_open());
  suspend.suspended = 0;
  CHECK(slurmstepd.say(suspend).find<SuspendReply>()->accepted == 1);
  CHECK(session.hear().find<Restore>());
}

TEST_CASE("A job is shown for ten minutes after its last session has ended") {
  FaultySystem system;
  system.time = std::chrono::seconds(1000);
  Host host({}, system);
  host.start();
  Process task;
  {
    Guest session(host, kUser, StepName{.job = 12, .step = 0}, task.pid());
    REQUIRE(session.say(Hello{}).find<Welcome>());
    *system.time += std::chrono::hours(1);
    task.end();
    host.run_until([&] { return host.status()["tenants"][0]["sessions"].empty(); });
  }
  *system.time += std::chrono::minutes(10) - std::chrono::nanoseconds(1);
  CHECK(host.status()["tenants"].size() == 1);
  *system.time += std::chrono::nanoseconds(1);
  CHECK(host.status()["tenants"].empty());
  CHECK(ask(host, 12).known == 1);
}

TEST_CASE(
    "A job whose lease an earlier arbiter left open lives until its session has had time to come back") {
  Host host;
  host.start();
  Process task;
  Guest session(host, kUser, StepName{.job = 12, .step = 0}, task.pid());
  REQUIRE(session.say(Hello{}).find<Welcome>());
  REQUIRE(session.say(attach()).find<Attached>());
  MemoryUse use{};
  use.swappable = use.resident = mebibytes(10);
  REQUIRE(session.say(Usage{.request = 1, .use = use}).find<Verdict>());
  REQUIRE(host.status()["tenants"][0]["lease"] == true);
  host.restart();
  CHECK(ask(host, 12).lives == 1);
  CHECK(host.status()["recovering"] == true);
}

}  // namespace
}  // namespace sharedgpu::test
