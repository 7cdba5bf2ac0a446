// SPDX-License-Identifier: Apache-2.0
// Changes of settings by administrators, and the rules of each GPU.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "host.h"

namespace sharedgpu::test {
namespace {

Guest::Reaction set(Host& host, const char* lines) {
  SetLines message;
  std::strcpy(message.text, lines);
  Guest root(host);
  return root.say(message);
}

std::string refusal(const Guest::Reaction& reaction) {
  REQUIRE(reaction.find<Refused>());
  CHECK(reaction.closed);
  return reaction.find<Refused>()->reason;
}

TEST_CASE("A change applies at once, and a wrong one changes nothing") {
  Host host;
  host.start();
  REQUIRE(set(host, "Policy=credit\nQuantum=7s").find<SetReply>()->done == 1);
  CHECK(host.status()["policy"] == "credit");
  CHECK(host.status()["gpus"][0]["policy"] == "credit");
  CHECK(host.status()["gpus"][0]["quantum_seconds"] == 7.0);

  CHECK(refusal(set(host, "Policy=fcfs\nQuantum=-1s")).find("Quantum") != std::string::npos);
  CHECK(refusal(set(host, "Socket=/elsewhere")) != "");
  CHECK(refusal(set(host, "[gpu 7]\nPolicy=fcfs")) == "no GPU 7 here");
  CHECK(refusal(set(host, "[gpu GPU-09000000-0000-0000-0000-000000000000]\nPolicy=fcfs")) ==
        "no GPU GPU-09000000-0000-0000-0000-000000000000 here");
  CHECK(host.status()["policy"] == "credit");
  CHECK(host.status()["gpus"][0]["policy"] == "credit");
}

TEST_CASE("A text without a terminating zero is read up to its full size") {
  Host host;
  host.start();
  SetLines endless;
  std::memset(endless.text, '#', sizeof endless.text);
  Guest root(host);
  CHECK(root.say(endless).find<SetReply>()->done == 1);
}

TEST_CASE("The entitlement of a job follows from the settings") {
  Host host;
  host.start();
  Guest slurmstepd(host), session(host, kUser, StepName{.job = 12, .step = 0});
  RegisterJob job{.step = {.job = 12, .step = 0}, .uid = kUser, .options = {}};
  job.options.share_request = 60;
  REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  REQUIRE(session.say(Hello{}).find<Welcome>());
  CHECK(host.status()["tenants"][0]["share_request"] == 0.6);
  REQUIRE(set(host, "MaxRequest=25%").find<SetReply>());
  CHECK(host.status()["tenants"][0]["share_request"] == 0.25);
}

TEST_CASE("A partition's rules hold on a GPU while all jobs on the GPU are of this partition") {
  Host host;
  host.start();
  REQUIRE(set(host, "[partition long]\nQuantum=9s").find<SetReply>());
  const auto quantum = [&] { return host.status()["gpus"][0]["quantum_seconds"].get<double>(); };
  const double before = quantum();
  CHECK(before != 9.0);
  const auto add = [&](std::uint32_t number, const char* partition, pid_t pid) {
    RegisterJob job{.step = {.job = number, .step = 0}, .uid = kUser, .options = {}};
    std::strcpy(job.job_class.partition, partition);
    Guest slurmstepd(host, 0, {}, pid);
    REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  };
  Process first, second, third;
  add(1, "long", first.pid());
  CHECK(quantum() == 9.0);
  add(2, "long", second.pid());
  CHECK(quantum() == 9.0);
  add(3, "short", third.pid());
  CHECK(quantum() == before);
  third.end();
  host.run_until([&] { return quantum() == 9.0; });
  first.end();
  second.end();
  host.run_until([&] { return quantum() == before; });
}

TEST_CASE("Requests beyond the site's limits are reported") {
  Settings settings;
  settings.max_priority = 5;
  settings.max_request = 50;
  Host host(settings);
  host.start();
  Guest slurmstepd(host);
  RegisterJob job{.step = {.job = 12, .step = 0}, .uid = kUser, .options = {}};
  job.options.priority = 5;
  REQUIRE(slurmstepd.say(job).find<RegisterReply>());
  CHECK(host.new_log_lines().empty());
  job.step.job = 13;
  job.options.priority = 6;
  job.options.share_request = 60;
  REQUIRE(slurmstepd.say(job).find<RegisterReply>());
  CHECK(host.new_log_lines() ==
        std::vector<std::string>{"warning: job 13: asks for a share of 60%, but gets only MaxRequest",
                                 "warning: job 13: asks for priority 6, but gets only MaxPriority"});
}

TEST_CASE("The rights of all jobs follow the settings, each according to its own request") {
  Host host;
  host.start();
  Guest slurmstepd(host);
  for (const std::uint32_t number : {12u, 13u}) {
    RegisterJob job{.step = {.job = number, .step = 0}, .uid = kUser, .options = {}};
    job.options.share_request = number;
    REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  }
  Guest first(host, kUser, StepName{.job = 12, .step = 0}),
      second(host, kUser, StepName{.job = 13, .step = 0});
  for (Guest* each : {&first, &second}) REQUIRE(each->say(Hello{}).find<Welcome>());
  const auto request = [&](std::size_t tenant) {
    return host.status()["tenants"][tenant]["share_request"].get<double>();
  };
  CHECK(request(0) == 0.12);
  CHECK(request(1) == 0.13);
  REQUIRE(set(host, "MaxRequest=5%").find<SetReply>());
  CHECK(request(0) == 0.05);
  CHECK(request(1) == 0.05);
}

TEST_CASE("A process outside of any job follows the settings, too") {
  Host host;
  host.start();
  Guest session(host, kUser);
  REQUIRE(session.say(Hello{}).find<Welcome>());
  CHECK(host.status()["tenants"][0]["priority"] == 0);
  REQUIRE(set(host, "MaxPriority=-10").find<SetReply>());
  CHECK(host.status()["tenants"][0]["priority"] == -10);
}

TEST_CASE("Each GPU that a section names must be there, and then has its own rules") {
  Host host;
  host.gpus.push_back({.uuid = {{2}}, .total = gibibytes(1), .name = "Other"});
  host.start();
  CHECK(refusal(set(host, "[gpu 0,7]\nPolicy=fcfs")) == "no GPU 7 here");
  const std::string first = "GPU-01000000-0000-0000-0000-000000000000";
  const std::string second = "GPU-02000000-0000-0000-0000-000000000000";
  const std::string none = "GPU-09000000-0000-0000-0000-000000000000";
  CHECK(refusal(set(host, ("[gpu " + first + "," + none + "]\nPolicy=fcfs").c_str())) ==
        "no GPU " + none + " here");
  REQUIRE(set(host, ("[gpu " + second + "]\nPolicy=fcfs").c_str()).find<SetReply>());
  CHECK(host.status()["gpus"][0]["policy"] == host.status()["policy"]);
  CHECK(host.status()["gpus"][1]["policy"] == "fcfs");
}

TEST_CASE("SwapPerUnit bounds each tenant by its units, except those that do not swap") {
  Settings settings;
  settings.swap_per_unit = *parse_typed_sizes("10MiB", true);
  Host host(settings);
  host.start();
  const auto budget = [&](std::uint32_t number, std::uint8_t given, Backend backend) {
    Guest slurmstepd(host), session(host, kUser, StepName{.job = number, .step = 0});
    RegisterJob job{.step = {.job = number, .step = 0}, .uid = kUser, .options = {}};
    job.options.units = 3;
    job.options.backend = backend;
    job.options.backend_given = given;
    REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
    REQUIRE(session.say(Hello{}).find<Welcome>());
    return host.status()["tenants"].back()["host_budget_bytes"];
  };
  CHECK(budget(12, 0, Backend::swap) == mebibytes(30).count);
  CHECK(budget(13, 1, Backend::swap) == mebibytes(30).count);
  CHECK(budget(14, 1, Backend::native) == nullptr);
}

TEST_CASE("SwapPerUnit=auto follows the GPU that a tenant has, and what a job says of its units' types") {
  Settings settings;
  settings.swap_per_unit = *parse_typed_sizes("auto", true);
  Host host(settings);
  host.start();
  Guest session(host, kUser);
  REQUIRE(session.say(Hello{}).find<Welcome>());
  REQUIRE(session.say(Attach{.gpu = kHostGpu, .total = {}, .name = {}}).find<Attached>());
  const auto tenant = host.status()["tenants"].back();
  const std::uint64_t total = host.status()["gpus"][0]["total_bytes"];
  CHECK(tenant["units_memory_bytes"] == (total + 7) / 8);
  CHECK(tenant["job_memory_bytes"] == nullptr);

  Guest slurmstepd(host);
  RegisterJob job{.step = {.job = 12, .step = 0}, .uid = kUser, .options = {}, .brought = gibibytes(3)};
  job.options.units = 2;
  REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  Guest its(host, kUser, StepName{.job = 12, .step = 0});
  REQUIRE(its.say(Hello{}).find<Welcome>());
  CHECK(host.status()["tenants"].back()["units_memory_bytes"] == gibibytes(3).count);
}

TEST_CASE("A job keeps what its units have brought if SwapPerUnit changes") {
  const char* const later = GENERATE("1MiB", "50MiB", "auto", "x:1MiB", "");
  Settings settings;
  settings.swap_per_unit = *parse_typed_sizes("10MiB", true);
  Host host(settings);
  host.start();
  RegisterJob job{.step = {.job = 12, .step = 0}, .uid = kUser, .options = {}};
  job.options.units = 3;
  REQUIRE(Guest(host).say(job).find<RegisterReply>()->accepted == 1);
  host.settings.swap_per_unit = parse_typed_sizes(later, true).value_or(TypedSizes());
  host.restart();
  Guest session(host, kUser, StepName{.job = 12, .step = 0});
  REQUIRE(session.say(Hello{}).find<Welcome>());
  const auto memory = [&] { return host.status()["tenants"][0]["units_memory_bytes"]; };
  CHECK(memory() == mebibytes(30).count);

  SECTION("a step that shares its units brings no more") {
    job.step.step = 1;
    REQUIRE(Guest(host).say(job).find<RegisterReply>()->accepted == 1);
    CHECK(memory() == mebibytes(30).count);
  }
  SECTION("a requeued job has been submitted again") {
    job.step.step = kBatchStep;
    job.brought = mebibytes(3);
    REQUIRE(Guest(host).say(job).find<RegisterReply>()->accepted == 1);
    CHECK(memory() == mebibytes(3).count);
  }
}

TEST_CASE("Units that a step adds bring what SwapPerUnit states then") {
  Settings settings;
  settings.swap_per_unit = *parse_typed_sizes("10MiB", true);
  Host host(settings);
  host.start();
  Guest session(host, kUser, StepName{.job = 12, .step = 0});
  const auto memory_with = [&](std::uint32_t step, std::uint32_t units) {
    RegisterJob job{.step = {.job = 12, .step = step}, .uid = kUser, .options = {}};
    job.options.units = units;
    REQUIRE(Guest(host).say(job).find<RegisterReply>()->accepted == 1);
    if (step == 0) REQUIRE(session.say(Hello{}).find<Welcome>());
    return host.status()["tenants"][0]["units_memory_bytes"];
  };
  CHECK(memory_with(0, 1) == mebibytes(10).count);
  CHECK(memory_with(1, 3) == mebibytes(30).count);
  CHECK(memory_with(2, 1) == mebibytes(30).count);
}

TEST_CASE("A run keeps what its units have brought") {
  Settings settings;
  settings.swap_per_unit = *parse_typed_sizes("10MiB", true);
  Host host(settings);
  host.start();
  RunRequest request{.options = {}};
  request.options.units = 2;
  request.vouched = 1;
  Guest run(host);
  REQUIRE(run.say(request).find<RunReply>());
  std::string options;
  for (const std::string& record : host.ledger())
    if (record.starts_with("options ")) options = record;
  CHECK(options.ends_with(" " + std::to_string(mebibytes(20).count)));
}

TEST_CASE("Units that a later step shares bring no less memory, and additional units bring more") {
  Settings settings;
  settings.swap_per_unit = *parse_typed_sizes("small:1GiB,large:3GiB", true);
  Host host(settings);
  host.start();
  Guest slurmstepd(host), session(host, kUser, StepName{.job = 12, .step = 0});
  std::uint32_t step = 0;
  const auto memory_with = [&](Bytes brought) {
    RegisterJob job{.step = {.job = 12, .step = step++}, .uid = kUser, .options = {}, .brought = brought};
    job.options.units = 2;
    REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
    if (step == 1) REQUIRE(session.say(Hello{}).find<Welcome>());
    return host.status()["tenants"].back()["units_memory_bytes"];
  };
  CHECK(memory_with(gibibytes(3)) == gibibytes(3).count);
  CHECK(memory_with(gibibytes(1)) == gibibytes(3).count);
  CHECK(memory_with(gibibytes(6)) == gibibytes(6).count);
}

TEST_CASE("The arbiter explains a refusal, and remembers whether the job got the explanation") {
  Settings settings;
  settings.swap_per_unit = *parse_typed_sizes("100MiB", true);
  Host host(settings);
  host.start();
  const auto explain = [](Guest& guest, Bytes size) {
    return *guest.say(RefusalQuery{.request = 5, .size = size}).find<RefusalReply>();
  };
  Guest anchor(host, kUser);
  const RunToken token = anchor.say(RunRequest{}).find<RunReply>()->token;
  Guest first(host, kUser), second(host, kUser), other(host, kUser);
  Hello hello;
  hello.token = token;
  for (Guest* each : {&first, &second}) REQUIRE(each->say(hello).find<Welcome>());
  REQUIRE(other.say(Hello{}).find<Welcome>());
  for (Guest* each : {&first, &second, &other})
    REQUIRE(each->say(Attach{.gpu = kHostGpu, .total = {}, .name = {}}).find<Attached>());
  CHECK(explain(first, mebibytes(100)).bound == Bound::none);
  const RefusalReply why = explain(first, mebibytes(101));
  CHECK(why.request == 5);
  CHECK(why.bound == Bound::units);
  CHECK(why.units == 2);
  CHECK(why.told == 0);
  CHECK(explain(second, mebibytes(801)).told == 1);   // another process of the run has told the user
  CHECK(explain(second, mebibytes(801)).units == 0);  // the memory of 8 units is too small, too
  CHECK(explain(other, mebibytes(101)).told == 0);
  const RefusalReply huge = explain(second, gibibytes(9000));
  CHECK(huge.bound == Bound::gpu);
  CHECK(huge.told == 0);  // the user has had no message about the GPU's limit
  CHECK(explain(first, gibibytes(9000)).told == 1);
}

TEST_CASE("A host without a GPU says so") {
  Host host;
  host.gpus.clear();
  host.start_keeping_log();
  CHECK(host.new_log_lines() ==
        std::vector<std::string>{
            "warning: no GPU found: no tenant is placed until a GPU appears; the arbiter keeps looking"});
  CHECK(Guest(host, kUser).say(RunRequest{}).find<RunReply>()->gpus.count == 0);
}

}  // namespace
}  // namespace sharedgpu::test
