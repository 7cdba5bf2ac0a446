// SPDX-License-Identifier: Apache-2.0
// The life of tenants: who belongs to whom, how long they last, and what begins anew.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>

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
  // Its token is nobody's from here on.
  Guest late(host, kUser);
  CHECK(late.say(hello).find<Welcome>()->tenant != run.tenant);
}

TEST_CASE("A token of another user's run makes no member of it") {
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

TEST_CASE("A session may come before its job is registered, and makes it known") {
  Host host;
  host.start();
  Guest session(host, kUser + 1, StepName{.job = 12, .step = 0});
  const TenantId tenant = session.say(Hello{}).find<Welcome>()->tenant;
  CHECK(ask(host, 12, kUser).known == 0);
  CHECK(ask(host, 12, kUser + 1).known == 1);
  Guest slurmstepd(host);
  REQUIRE(slurmstepd.say(registration(12, 0)).find<RegisterReply>()->accepted == 1);
  CHECK(ask(host, 12, kUser).known == 1);  // whose it is Slurm says
  CHECK(ask(host, 12, kUser + 1).known == 0);
  Guest other(host, kUser, StepName{.job = 12, .step = 0});
  CHECK(other.say(Hello{}).find<Welcome>()->tenant == tenant);
}

TEST_CASE("A job is told of to its user and to administrators alone") {
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

TEST_CASE("A job lives as long as a process that was told of it, or a session") {
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
  CHECK(ask(host, 12).known == 1);  // and may come again
}

// A job has run here and ended, however it is told.
struct Requeued {
  Host host;
  Process stepd, task;

  Requeued() {
    host.start();
    Guest slurmstepd(host, 0, {}, stepd.pid());
    REQUIRE(slurmstepd.say(registration(12, kBatchStep)).find<RegisterReply>()->accepted == 1);
    Guest session(host, kUser, StepName{.job = 12, .step = kBatchStep}, task.pid());
    REQUIRE(session.say(Hello{}).find<Welcome>());
    REQUIRE(session.say(attach()).find<Attached>());
    MemoryUse use{};
    use.swappable = use.resident = mebibytes(10);
    REQUIRE(session.say(Usage{.request = 1, .use = use}).find<Verdict>());
    task.end();
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

TEST_CASE("A further step of a job begins nothing anew, nor does any while the job lives") {
  Requeued job;
  SECTION("a further step") {
    job.end_stepd();
    CHECK_FALSE(job.begins_with(0, 0));
  }
  SECTION("a batch step while a process of the job lives") { CHECK_FALSE(job.begins_with(kBatchStep, 0)); }
}

TEST_CASE("What is told of a job is written down once") {
  Host host;
  host.start();
  Guest slurmstepd(host);
  RegisterJob job = registration(12, kBatchStep);
  job.options.units = 3;
  REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  CHECK(kinds(host.ledger()) == std::vector<std::string>{"boot", "tenant", "options", "class", "place"});
  REQUIRE(slurmstepd.say(EndJob{.job = 12}).find<EndJobReply>()->accepted == 1);
  CHECK(host.ledger().back() == "over 1");
  REQUIRE(slurmstepd.say(EndJob{.job = 13}).find<EndJobReply>()->accepted == 1);  // nothing to end
  CHECK(host.ledger().size() == 6);
}

TEST_CASE("Who a job is is written again when it comes again, and not while a process of it is there") {
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
  CHECK(written() == 2);  // a checkpoint may have left it out meanwhile
  Guest session(host, kUser, StepName{.job = 12, .step = 1});
  REQUIRE(session.say(Hello{}).find<Welcome>());
  REQUIRE(written() == 3);
  come(2);
  CHECK(written() == 3);
}

TEST_CASE("Tenants last over a restart as their processes do") {
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

}  // namespace
}  // namespace sharedgpu::test
