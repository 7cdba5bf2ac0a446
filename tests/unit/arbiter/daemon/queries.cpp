// SPDX-License-Identifier: Apache-2.0
// Answers about jobs and steps: each total is in its own field, covers only this job, and is shown only to
// the job's user.
#include <unistd.h>
#include <catch2/catch.hpp>

#include <chrono>
#include <set>
#include <string>

#include "host.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

// Two jobs that do not fit together. The first job had its lease from 1000 s to 1027 s; the lease was revoked
// 2 s before this end. The second job waited from 1005 s to 1031 s, and has had its lease since then.
struct TwoJobs {
  static constexpr StepName kFirst{.job = 12, .step = 3}, kSecond{.job = 13, .step = 4};
  FaultySystem system;
  std::optional<Host> host;
  std::optional<Guest> first, second;

  static Settings settings() {
    Settings settings;
    settings.quantum = 10s;
    return settings;
  }
  void pass(Nanoseconds time) {
    *system.time += time;
    REQUIRE(second->say(MemoryQuery{.request = 9}).find<MemoryView>());  // each message makes the core read
                                                                         // its clock
  }
  TwoJobs() {
    system.time = 1000s;
    host.emplace(settings(), system);
    host->start();
    first.emplace(*host, kUser, kFirst);
    second.emplace(*host, kUser + 1, kSecond);
    const auto come = [](Guest& guest) {
      REQUIRE(guest.say(Hello{}).find<Welcome>());
      REQUIRE(guest.say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = {}}).find<Attached>());
    };
    come(*first);
    REQUIRE(first->say(Usage{.request = 1, .use = use(mebibytes(800), {})}).find<Verdict>()->granted == 1);
    first->say(Usage{.request = 0, .use = use(mebibytes(800), mebibytes(700))});
    *system.time += 5s;
    come(*second);
    const Guest::Reaction growth = second->say(Usage{.request = 1, .use = use(mebibytes(600), {})});
    REQUIRE_FALSE(growth.find<Verdict>());
    const auto leave = growth.find<Revoke>();
    REQUIRE(leave);
    second->say(Released{.epoch = leave->epoch, .order = leave->order, .wants = 1, .overuse = {}, .use = {}});
    pass(20s);
    const auto revoke = first->hear().find<Revoke>();
    REQUIRE(revoke);
    *system.time += 2s;
    const MemoryUse all = use(mebibytes(800), mebibytes(700));
    first->say(
        Released{.epoch = revoke->epoch, .order = revoke->order, .wants = 0, .overuse = {}, .use = all});
    *system.time += 4s;
    first->say(Usage{.request = 0,
                     .use = use(mebibytes(800), mebibytes(200)),
                     .moved = {.evicted = mebibytes(500), .restored = mebibytes(40)}});
    const auto restore = second->hear().find<Restore>();
    REQUIRE(restore);
    const MemoryUse its = use(mebibytes(600), mebibytes(600));
    second->say(Ready{.epoch = restore->epoch, .use = its});
    REQUIRE(host->status()["tenants"][1]["lease"] == true);
  }
  template <class Query>
  auto ask(const Query& query, uid_t uid = 0) {
    Guest guest(*host, uid);
    if constexpr (std::is_same_v<Query, JobQuery>)
      return *guest.say(query).template find<JobReply>();
    else if constexpr (std::is_same_v<Query, ExchangeQuery>)
      return *guest.say(query).template find<ExchangeReply>();
    else
      return *guest.say(query).template find<LeaseReply>();
  }
};

TEST_CASE(
    "A session that reports fewer bytes than before takes nothing from the totals, and adds nothing twice") {
  TwoJobs jobs;
  const auto report = [&](Bytes evicted, Bytes restored) {
    jobs.first->say(Usage{.request = 0,
                          .use = use(mebibytes(800), mebibytes(200)),
                          .moved = {.evicted = evicted, .restored = restored}});
    return jobs.ask(JobQuery{.job = 12}).moved;
  };
  const Traffic before{.evicted = mebibytes(500), .restored = mebibytes(40)};
  CHECK(report({}, {}) == before);
  CHECK(report(mebibytes(500), mebibytes(41)) ==
        Traffic{.evicted = mebibytes(500), .restored = mebibytes(41)});
}

TEST_CASE("The reply about a job has its totals") {
  TwoJobs jobs;
  const JobReply first = jobs.ask(JobQuery{.job = 12});
  CHECK(first.job == 12);
  CHECK(first.known == 1);
  CHECK(first.lives == 1);
  CHECK(first.backends == 1);
  CHECK(first.lease == 27s);
  CHECK(first.waited == 0s);
  CHECK(first.overuse == 2s);
  CHECK(first.handoffs == 1);
  CHECK(first.moved == Traffic{.evicted = mebibytes(500), .restored = mebibytes(40)});
  CHECK(first.footprint == mebibytes(800));
  CHECK(first.resident == mebibytes(700));
  CHECK(std::string(first.models) == "Test GPU");

  *jobs.system.time += 3s;
  const JobReply second = jobs.ask(JobQuery{.job = 13});
  CHECK(second.lease == 3s);
  CHECK(second.waited == 26s);
  CHECK(second.overuse == 0s);
  CHECK(second.moved == Traffic{});
  CHECK(second.footprint == mebibytes(600));
}

TEST_CASE("The user of a job gets its exchanges, which count once over repeated reports") {
  TwoJobs jobs;
  Exchanges some{.moved = {.evicted = mebibytes(300), .restored = mebibytes(200)},
                 .moving = 3s,
                 .waited = 4s,
                 .copied = mebibytes(300),
                 .fastest = mebibytes(150),
                 .slowed = 5s};
  const auto report = [&] {
    jobs.first->say(Usage{.request = 0, .use = use(mebibytes(800), mebibytes(200)), .exchanges = some});
  };
  report();
  report();
  some.waited += 1s;
  some.fastest = mebibytes(100);
  report();
  some.fastest = mebibytes(150);
  for (const uid_t uid : {uid_t{0}, kUser}) {
    const ExchangeReply reply = jobs.ask(ExchangeQuery{.job = 12}, uid);
    CHECK(reply.known == 1);
    CHECK(reply.exchanges == some);
    CHECK(reply.exchanges.moving_at_best() == 2s);
  }
  const ExchangeReply hidden = jobs.ask(ExchangeQuery{.job = 12}, kUser + 1);
  CHECK(hidden.known == 0);
  CHECK(hidden.exchanges == Exchanges{});
  CHECK(jobs.ask(ExchangeQuery{.job = 13}).exchanges == Exchanges{});
}

TEST_CASE("Only the job's user and administrators get the totals of a step") {
  TwoJobs jobs;
  for (const uid_t uid : {uid_t{0}, kUser}) {
    const LeaseReply first = jobs.ask(LeaseQuery{.step = TwoJobs::kFirst}, uid);
    CHECK(first.step == TwoJobs::kFirst);
    CHECK(first.known == 1);
    CHECK(first.lease == 27s);
    CHECK(first.waited == 0s);
    CHECK(first.moved == Traffic{.evicted = mebibytes(500), .restored = mebibytes(40)});
  }
  const LeaseReply second = jobs.ask(LeaseQuery{.step = TwoJobs::kSecond}, kUser + 1);
  CHECK(second.known == 1);
  CHECK(second.waited == 26s);
  CHECK(second.moved == Traffic{});
  for (const LeaseReply& none : {jobs.ask(LeaseQuery{.step = TwoJobs::kFirst}, kUser + 1),
                                 jobs.ask(LeaseQuery{.step = {.job = 12, .step = 4}}),
                                 jobs.ask(LeaseQuery{.step = {.job = 14, .step = 3}})}) {
    CHECK(none.known == 0);
    CHECK(none.lease == 0s);
    CHECK(none.moved == Traffic{});
    CHECK(none.waited == 0s);
  }
  const JobReply hidden = jobs.ask(JobQuery{.job = 12}, kUser + 1);
  CHECK(hidden.known == 0);
  CHECK(hidden.lease == 0s);
  CHECK(hidden.footprint == Bytes{});
}

TEST_CASE("A step is known while it has a session, and later if it has ever had a lease") {
  TwoJobs jobs;
  const StepName idle{.job = 12, .step = 7};
  Process process;
  Guest session(*jobs.host, kUser, idle, process.pid());
  REQUIRE(session.say(Hello{}).find<Welcome>());
  CHECK(jobs.ask(LeaseQuery{.step = idle}).known == 1);
  CHECK(jobs.ask(LeaseQuery{.step = {.job = 12, .step = 8}}).known == 0);
  process.end();
  jobs.host->run_until([&] { return jobs.ask(LeaseQuery{.step = idle}).known == 0; });
  CHECK(jobs.ask(LeaseQuery{.step = TwoJobs::kFirst}).known == 1);
}

TEST_CASE("Of the GPUs that a job has held, the reply names each model once") {
  Host host;
  host.gpus = {{.uuid = {{1}}, .total = gibibytes(1), .name = "Model B"},
               {.uuid = {{2}}, .total = gibibytes(1), .name = "Model A"},
               {.uuid = {{3}}, .total = gibibytes(1), .name = "Model B"},
               {.uuid = {{4}}, .total = gibibytes(1), .name = "Model C"}};
  host.start();
  for (std::uint8_t gpu = 1; gpu <= 3; ++gpu) {
    Process process;
    Guest session(host, kUser, StepName{.job = 12, .step = 0}, process.pid());
    REQUIRE(session.say(Hello{}).find<Welcome>());
    REQUIRE(session.say(Attach{.gpu = {{gpu}}, .total = gibibytes(1), .name = {}}).find<Attached>());
    REQUIRE(session.say(Usage{.request = 1, .use = use(mebibytes(1), {})}).find<Verdict>()->granted == 1);
    process.end();
    host.run_until([&] { return host.status()["tenants"][0]["sessions"].empty(); });
  }
  CHECK(std::string(Guest(host).say(JobQuery{.job = 12}).find<JobReply>()->models) == "Model A;Model B");
}

TEST_CASE("The status names the process of each session") {
  Host host;
  host.start();
  const Process first, second;
  Guest one(host, kUser, {}, first.pid()), other(host, kUser, {}, second.pid());
  for (Guest* each : {&one, &other}) REQUIRE(each->say(Hello{}).find<Welcome>());
  CHECK(host.status()["tenants"][0]["pids"] == nlohmann::json{first.pid()});
  CHECK(host.status()["tenants"][1]["pids"] == nlohmann::json{second.pid()});
}

// Counts the reads of files, and the reads of the PID namespaces of processes.
struct CountingSystem : FaultySystem {
  mutable unsigned reads = 0;
  Status read_file(const std::string& path, std::string& text) const override {
    ++reads;
    return FaultySystem::read_file(path, text);
  }
  std::vector<ino_t> pid_namespaces(pid_t pid, std::size_t count) const override {
    ++reads;
    return FaultySystem::pid_namespaces(pid, count);
  }
};

TEST_CASE("The processes on a GPU are listed without a poll of any of them") {
  CountingSystem system;
  Host host({}, system);
  host.start();
  Guest run(host, kUser), asker(host, kUser);
  const RunToken token = run.say(RunRequest{}).find<RunReply>()->token;
  Hello hello;
  hello.token = token;
  Guest one(host, kUser), other(host, kUser);
  for (Guest* each : {&one, &other}) {
    REQUIRE(each->say(hello).find<Welcome>());
    REQUIRE(each->say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = {}}).find<Attached>());
  }
  const unsigned before = system.reads;
  CHECK(asker.say(GpuQuery{.token = token, .gpu = kHostGpu}).find<GpuReply>()->processes == 2);
  CHECK(system.reads == before);
}

// The text of the status that the guest gets.
std::string status_for(Guest& guest) {
  const auto reply = guest.say(StatusQuery{}).find<StatusReply>();
  REQUIRE(reply);
  std::string text(reply->size, '\0');
  REQUIRE(pread(guest.last_descriptor.get(), text.data(), text.size(), 0) ==
          static_cast<ssize_t>(text.size()));
  return text;
}

// The users whose tenants the guest sees.
std::vector<uid_t> users_seen_by(Guest& guest) {
  std::vector<uid_t> users;
  const auto status = nlohmann::json::parse(status_for(guest));
  for (const auto& tenant : status["tenants"]) users.push_back(tenant["uid"].get<uid_t>());
  return users;
}

TEST_CASE("With PrivateData=jobs, users see their own tenants, and the sums of all") {
  Settings settings = hiding_jobs();
  settings.status_users = {std::to_string(kUser + 2)};
  Host host(settings);
  host.start();
  Guest one(host, kUser, StepName{.job = 12, .step = 0});
  Guest other(host, kUser + 1, StepName{.job = 13, .step = 0});
  Guest root(host);
  for (Guest* each : {&one, &other}) {
    REQUIRE(each->say(Hello{}).find<Welcome>());
    REQUIRE(each->say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = {}}).find<Attached>());
    REQUIRE(each->say(Usage{.request = 1, .use = use(mebibytes(100), {})}).find<Verdict>());
  }
  const std::vector<uid_t> all{kUser, kUser + 1};
  Guest asker(host, kUser), other_asker(host, kUser + 1), viewer(host, kUser + 2), stranger(host, kUser + 3);
  CHECK(users_seen_by(asker) == std::vector<uid_t>{kUser});
  CHECK(users_seen_by(other_asker) == std::vector<uid_t>{kUser + 1});
  CHECK(users_seen_by(asker) == std::vector<uid_t>{kUser});
  CHECK(users_seen_by(stranger).empty());
  CHECK(users_seen_by(viewer) == all);
  CHECK(users_seen_by(root) == all);
  const auto gpu = nlohmann::json::parse(status_for(asker))["gpus"][0];
  CHECK(gpu["footprint_bytes"] == mebibytes(200).count);
  CHECK(gpu["hidden_tenants"] == 1);
  CHECK(gpu["holders"] == nlohmann::json{1, 0});
}

// A peer with a subordinate uid of kUser, as in a rootless container.
struct Contained : Guest {
  explicit Contained(Host& host, uid_t uid, std::optional<StepName> step = {})
      : Guest(host, uid, step, getpid(), kUser) {}
};

TEST_CASE("In a rootless container a user sees its own tenants inside and outside of the container") {
  Host host(hiding_jobs());
  host.start();
  Guest outside(host, kUser, StepName{.job = 12, .step = 0});
  Guest stranger(host, kUser + 1, StepName{.job = 13, .step = 0});
  Contained inside(host, 100'001);
  for (Guest* each : {&outside, &stranger, static_cast<Guest*>(&inside)})
    REQUIRE(each->say(Hello{}).find<Welcome>());
  const std::vector<uid_t> own{kUser, 100'001};
  Guest asker_outside(host, kUser), other_asker(host, kUser + 1);
  Contained asker_inside(host, 100'002);
  CHECK(users_seen_by(asker_outside) == own);
  CHECK(users_seen_by(asker_inside) == own);
  CHECK(users_seen_by(other_asker) == std::vector<uid_t>{kUser + 1});
}

TEST_CASE("A user with many subordinate uids gets new statuses no more often than other users") {
  FaultySystem system;
  system.time = 1000s;
  Host host(hiding_jobs(), system);
  host.start();
  Guest slurmstepd(host);
  RegisterJob job{.step = {.job = 1, .step = 0}, .uid = kUser, .options = {}};
  std::set<std::string> texts;
  for (uid_t uid = 100'000; uid < 100'020; ++uid) {
    ++job.step.job;
    REQUIRE(slurmstepd.say(job).find<RegisterReply>());
    Contained asker(host, uid);
    texts.insert(status_for(asker));
  }
  CHECK(texts.size() == 4);
}

TEST_CASE("A process that has ended sees no tenant, not even tenants of the user as whom it counts") {
  Host host(hiding_jobs());
  host.start();
  Guest slurmstepd(host), ended(host, 100'001, {}, getpid(), kEnded);
  REQUIRE(slurmstepd.say(RegisterJob{.step = {.job = 1, .step = 0}, .uid = kEnded, .options = {}})
              .find<RegisterReply>());
  CHECK(users_seen_by(ended).empty());
}

TEST_CASE("A user's query about its own job is answered in a rootless container, too") {
  Host host;
  host.start();
  Guest slurmstepd(host), stranger(host, kUser + 1);
  Contained asker(host, 100'001);
  REQUIRE(slurmstepd.say(RegisterJob{.step = {.job = 9, .step = 0}, .uid = kUser, .options = {}})
              .find<RegisterReply>());
  CHECK(asker.say(JobQuery{.job = 9}).find<JobReply>()->known == 1);
  CHECK(stranger.say(JobQuery{.job = 9}).find<JobReply>()->known == 0);
}

TEST_CASE("A user who asks too often still sees no other user's tenants") {
  FaultySystem system;
  system.time = 1000s;
  Host host(hiding_jobs(), system);
  host.start();
  Guest one(host, kUser), root(host);
  REQUIRE(one.say(Hello{}).find<Welcome>());
  Guest stranger(host, kUser + 1);
  for (int i = 0; i < 12; ++i) {
    CHECK(users_seen_by(root).size() == 1);
    CHECK(users_seen_by(stranger).empty());
  }
}

TEST_CASE("A user gets a few new statuses at once, and then statuses that may be half a second old") {
  FaultySystem system;
  system.time = 1000s;
  Settings settings;
  settings.private_data = PrivateData::none;
  Host host(settings, system);
  host.start();
  Guest guest(host, kUser), root(host), slurmstepd(host);
  RegisterJob job{.step = {.job = 1, .step = 0}, .uid = kUser, .options = {}};
  const auto is_new = [&](Guest& asker) {
    ++job.step.job;
    REQUIRE(slurmstepd.say(job).find<RegisterReply>());
    const std::string text = status_for(asker);
    return text == host.arbiter->status();
  };
  for (int i = 0; i < 4; ++i) CHECK(is_new(guest));
  CHECK_FALSE(is_new(guest));
  for (int i = 0; i < 20; ++i) CHECK(is_new(root));
  *system.time += 500ms;
  CHECK(is_new(guest));
  CHECK_FALSE(is_new(guest));
}

}  // namespace
}  // namespace sharedgpu::test
