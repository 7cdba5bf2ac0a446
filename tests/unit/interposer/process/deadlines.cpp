// SPDX-License-Identifier: Apache-2.0
// Reports of deadlines reach the arbiter, even if it starts later than the program. Reports are not sent to
// an arbiter that does not know their message. A process has only one session, so all checks are in one test
// case.
#include <cuda.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>

#include "include/sharedgpu_deadline.h"
#include "protocol/deadline_pipe.h"
#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;
using namespace std::chrono_literals;
using test::ScriptedArbiter;

namespace {

std::string socket_path() { return "/tmp/sharedgpu-deadlines-test-" + std::to_string(getpid()); }

int unread() {
  int bytes = -1;
  ioctl(std::atoi(std::getenv("SHAREDGPU_DEADLINE_READ")), FIONREAD, &bytes);
  return bytes;
}

}  // namespace

TEST_CASE("deadlines are reported to an arbiter that understands the message") {
  setenv("SHAREDGPU_SOCKET", socket_path().c_str(), 1);
  setenv("SHAREDGPU_ARBITER_TIMEOUT", "2000", 1);
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  REQUIRE(make_deadline_pipe(33ms, set) == 0);
  CHECK(std::string(std::getenv("SHAREDGPU_DEADLINE")) == "0.033");
  ScriptedArbiter arbiter(socket_path());
  arbiter.listen();

  // Before the process has a session, reports wait in the pipe.
  REQUIRE(sharedgpu_deadline(1) == 0);
  auto init = std::async(std::launch::async, [] { return cuInit(0); });
  arbiter.accept();
  arbiter.welcome(true, {1});
  REQUIRE(init.get() == CUDA_SUCCESS);

  // A process that uses no GPU leaves the reports to other processes of its tenant.
  std::this_thread::sleep_for(50ms);
  CHECK(unread() == 4);
  auto context = std::async(std::launch::async, [] {
    CUcontext made = nullptr;
    return cuDevicePrimaryCtxRetain(&made, 0);
  });
  Deadlines seen = arbiter.expect<Deadlines>();
  CHECK(seen.met == 1);
  CHECK(seen.missed == 0);
  arbiter.serve_until([&] { return context.wait_for(0s) == std::future_status::ready; });
  REQUIRE(context.get() == CUDA_SUCCESS);

  REQUIRE(sharedgpu_deadline(0) == 0);
  seen = arbiter.expect<Deadlines>();
  CHECK(seen.met == 0);
  CHECK(seen.missed == 1);

  // The next arbiter gets the reports that the program made while no arbiter ran.
  arbiter.die();
  arbiter.listen();
  CHECK(arbiter.accept().resuming == 1);
  REQUIRE(sharedgpu_deadline(1) == 0);
  arbiter.welcome(true, {1});
  CHECK(arbiter.expect<Deadlines>().met == 1);

  // The session sends no Deadlines message to an arbiter of an earlier version, which does not know the
  // message.
  arbiter.version = Deadlines::kSince - 1;
  arbiter.page().set_open(false);
  const int told = arbiter.deadlines;
  REQUIRE(sharedgpu_deadline(0) == 0);
  for (const std::uint64_t order : {2, 3}) {
    arbiter.say(Revoke{.epoch = {1}, .order = order});
    arbiter.expect<Released>();
  }
  CHECK(arbiter.deadlines == told);
  CHECK(unread() == 7);
}
