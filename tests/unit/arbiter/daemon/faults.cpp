// SPDX-License-Identifier: Apache-2.0
// The arbiter on a host that fails: without descriptors, random numbers, users or a readable /proc.
#include <catch2/catch.hpp>
#include <cerrno>
#include <string>

#include "host.h"

namespace sharedgpu::test {
namespace {

TEST_CASE("A session without a free descriptor may connect again") {
  FaultySystem system;
  Host host({}, system);
  host.start();
  const auto hello_fails_with = [&](const std::string& why) {
    Guest guest(host);
    const Guest::Reaction reaction = guest.say(Hello{});
    CHECK(reaction.answers.empty());  // no Refused message, since sessions take a refusal as final
    CHECK(reaction.closed);
    CHECK(host.new_log_lines() == std::vector<std::string>{"warning: pid N: dropped: " + why});
  };
  system.memory_files = EMFILE;
  hello_fails_with("cannot create the lease page: Too many open files");
  system.memory_files = ENOMEM;
  hello_fails_with("cannot create the lease page: Cannot allocate memory");
  system.memory_files = 0;
  system.duplicates = EMFILE;
  hello_fails_with("cannot watch the process: Too many open files");
  CHECK(host.status()["tenants"].empty());
  CHECK(host.ledger().size() == 1);  // the only record is that of the arbiter's start
  system.duplicates = 0;
  Guest guest(host);
  CHECK(guest.say(Hello{}).find<Welcome>()->session == SessionId{1});
}

TEST_CASE("A status query without a free descriptor is refused") {
  FaultySystem system;
  Host host({}, system);
  host.start();
  Guest guest(host, kUser);
  system.memory_files = EMFILE;
  const Guest::Reaction reaction = guest.say(StatusQuery{});
  REQUIRE(reaction.find<Refused>());
  CHECK(std::string(reaction.find<Refused>()->reason) == "status: Too many open files");
  CHECK(reaction.closed);
  system.memory_files = 0;
  CHECK(Guest(host, kUser).say(StatusQuery{}).find<StatusReply>());
}

TEST_CASE("No run begins if there are no random numbers") {
  FaultySystem system;
  Host host({}, system);
  host.start();
  system.random_numbers = false;
  Guest guest(host, kUser);
  const Guest::Reaction reaction = guest.say(RunRequest{});
  REQUIRE(reaction.find<Refused>());
  CHECK(std::string(reaction.find<Refused>()->reason) == "no random numbers");
  CHECK(host.status()["tenants"].empty());
  CHECK(host.ledger().size() == 1);
  system.random_numbers = true;
  CHECK(Guest(host, kUser).say(RunRequest{}).find<RunReply>());
}

TEST_CASE("A job or run that nobody can watch keeps no place on a GPU") {
  FaultySystem system;
  Host host({}, system);
  host.start();
  system.duplicates = EMFILE;
  Guest run(host, kUser), slurmstepd(host);
  CHECK(run.say(RunRequest{}).find<RunReply>()->gpus.count == 1);
  RegisterJob job{.step = {.job = 12, .step = 0}, .uid = kUser, .options = {}};
  job.options.units = 3;
  CHECK(slurmstepd.say(job).find<RegisterReply>()->gpus.count == 1);
  CHECK(host.status()["gpus"][0]["units"] == 0);
  system.duplicates = 0;
  CHECK(slurmstepd.say(job).find<RegisterReply>()->gpus.count == 1);
  CHECK(host.status()["gpus"][0]["units"] == 3);
}

TEST_CASE("If no user is known by name, root and the users given by number are administrators") {
  FaultySystem system;
  system.users = false;
  Settings settings;
  settings.admin_users = {"daemon", "77"};
  Host host(settings, system);
  host.start_keeping_log();
  CHECK(host.new_log_lines() ==
        std::vector<std::string>{"warning: AdminUsers or StatusUsers: no such user: daemon"});
  CHECK(Guest(host, 0).say(EndJob{.job = 12}).find<EndJobReply>()->accepted == 1);
  CHECK(Guest(host, 77).say(EndJob{.job = 12}).find<EndJobReply>()->accepted == 1);
  CHECK(Guest(host, 1).say(EndJob{.job = 12}).find<EndJobReply>()->accepted == 0);
}

TEST_CASE("A process that is missing from /proc counts as ended when its connection is closed") {
  FaultySystem system;
  Host host({}, system);
  host.start();
  Guest guest(host, kUser);
  REQUIRE(guest.say(Hello{}).find<Welcome>());
  REQUIRE(guest.say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = {}}).find<Attached>());
  MemoryUse use{};
  use.swappable = use.resident = mebibytes(100);
  REQUIRE(guest.say(Usage{.request = 1, .use = use}).find<Verdict>());
  system.reading = [](const std::string&) { return ENOENT; };
  CHECK(host.status()["tenants"][0]["stopped"] == false);
  guest.channel.close();
  host.run_until([&] { return host.status()["tenants"].empty(); });
  CHECK(host.ledger().back().rfind("end ", 0) == 0);
}

TEST_CASE("A session without a connection is not dropped because of a lack of descriptors") {
  FaultySystem system;
  Host host({}, system);
  host.start();
  Guest guest(host, kUser);
  REQUIRE(guest.say(Hello{}).find<Welcome>());
  REQUIRE(guest.say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = {}}).find<Attached>());
  MemoryUse use{};
  use.swappable = use.resident = mebibytes(100);
  REQUIRE(guest.say(Usage{.request = 1, .use = use}).find<Verdict>());
  int looks = 0;
  system.reading = [&](const std::string& path) { return path.ends_with("/stat") ? (++looks, EMFILE) : 0; };
  guest.channel.close();
  host.run_until([&] { return looks >= 3; });
  CHECK(host.status()["tenants"].size() == 1);
  system.reading = [](const std::string&) { return ENOENT; };
  host.run_until([&] { return host.status()["tenants"].empty(); });
}

TEST_CASE(
    "An arbiter that starts where /proc cannot be read serves, and forgets nobody for want of descriptors") {
  FaultySystem system;
  Host host({}, system);
  host.start();
  const Process process;
  Guest run(host, kUser, {}, process.pid());
  Hello hello;
  hello.token = run.say(RunRequest{}).find<RunReply>()->token;
  Guest session(host, kUser, {}, process.pid());
  REQUIRE(session.say(hello).find<Welcome>());
  REQUIRE(host.status()["gpus"][0]["units"] == 1);
  std::size_t kept = 0;
  SECTION("not at all") {
    system.reading = [](const std::string&) { return EACCES; };
  }
  SECTION("for want of descriptors") {
    system.reading = [](const std::string&) { return EMFILE; };
    system.processes = EMFILE;
    kept = 1;
  }
  host.restart();
  CHECK(host.status()["gpus"][0]["units"] == kept);
  CHECK(host.status()["tenants"].size() == kept);
  system.reading = [](const std::string&) { return 0; };
  system.processes = 0;
  CHECK(Guest(host, kUser).say(Hello{}).find<Welcome>());
}

}  // namespace
}  // namespace sharedgpu::test
