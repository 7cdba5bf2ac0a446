// SPDX-License-Identifier: Apache-2.0
// The messages to users whose jobs wait for long.
#include <sys/socket.h>
#include <catch2/catch.hpp>

#include <chrono>
#include <string>

#include "host.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

// Two tenants, of different users, whose memory does not fit on the GPU together. The second tenant has two
// sessions and waits.
struct TwoTenants {
  FaultySystem system;
  std::optional<Host> host;
  std::optional<Guest> holder, waiter, its_other;

  explicit TwoTenants(Settings settings) {
    system.time = 1000s;
    settings.quantum = 600s;
    host.emplace(settings, system);
    host->start();
    holder.emplace(*host, kUser, StepName{.job = 12, .step = 0});
    waiter.emplace(*host, kUser + 1, StepName{.job = 13, .step = 0});
    its_other.emplace(*host, kUser + 1, StepName{.job = 13, .step = 0});
    for (Guest* each : {&*holder, &*waiter, &*its_other}) {
      REQUIRE(each->say(Hello{}).find<Welcome>());
      REQUIRE(each->say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = {}}).find<Attached>());
    }
    REQUIRE(holder->say(Usage{.request = 1, .use = use(mebibytes(800), {})}).find<Verdict>()->granted == 1);
    holder->say(Usage{.request = 0, .use = use(mebibytes(800), mebibytes(800))});
    const auto revoke = waiter->say(Usage{.request = 1, .use = use(mebibytes(600), {})}).find<Revoke>();
    REQUIRE(revoke);
    waiter->say(
        Released{.epoch = revoke->epoch, .order = revoke->order, .wants = 1, .overuse = {}, .use = {}});
    const auto other = its_other->hear().find<Revoke>();
    REQUIRE(other);
    its_other->say(
        Released{.epoch = other->epoch, .order = other->order, .wants = 1, .overuse = {}, .use = {}});
    REQUIRE(host->status()["tenants"][1]["wants"] == true);
  }
  // Moves the time forward by `time`, and then lets the arbiter run for so long that it checks the waiting
  // tenants at least twice.
  void wait(Nanoseconds time) {
    *system.time += time;
    const auto end = std::chrono::steady_clock::now() + 1200ms;
    host->run_until([&] { return std::chrono::steady_clock::now() >= end; });
  }
  std::vector<std::string> heard() {
    std::vector<std::string> texts;
    for (Guest* each : {&*holder, &*waiter, &*its_other})
      for (const Message& message : each->hear().answers)
        if (message.type == MessageType::notice) texts.emplace_back(message.as<Notice>().text);
    return texts;
  }
};

TEST_CASE("A job that waits for long gets one line with the reason, from one of its sessions") {
  Settings settings;
  settings.private_data = PrivateData::none;
  TwoTenants at(settings);
  at.wait(29s);
  CHECK(at.heard().empty());
  at.wait(2s);
  CHECK(at.heard() == std::vector<std::string>{
                          "this job has waited 31 s for GPU 0: the turn of job 12 lasts up to 569 s more"});
  at.wait(100s);
  CHECK(at.heard().empty());
}

TEST_CASE("Without NoticeAfter no job gets a line") {
  Settings settings;
  settings.notice_after = {};
  TwoTenants at(settings);
  at.wait(400s);
  CHECK(at.heard().empty());
}

TEST_CASE("A line to a job names no job that its user may not see") {
  TwoTenants at(hiding_jobs());
  at.wait(30s);
  CHECK(at.heard() ==
        std::vector<std::string>{
            "this job has waited 30 s for GPU 0: the turn of another job lasts up to 570 s more"});
}

TEST_CASE("A session that does not know notices gets none") {
  TwoTenants at({});
  Message old = Message::of(MemoryQuery{});
  old.version = Notice::kSince - 1;
  for (Guest* each : {&*at.waiter, &*at.its_other})
    REQUIRE(send(each->channel.fd(), &old, sizeof old, MSG_NOSIGNAL) == sizeof old);
  at.wait(60s);
  CHECK(at.heard().empty());
}

}  // namespace
}  // namespace sharedgpu::test
