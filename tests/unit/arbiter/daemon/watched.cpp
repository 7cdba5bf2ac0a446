// SPDX-License-Identifier: Apache-2.0
// Waiting for the end of a process, while other descriptors are opened and closed in the same round of the
// event loop.
#include "arbiter/daemon/watched.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>

#include "host.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;
using Descriptor = asio::posix::stream_descriptor;

UniqueFd pidfd_of(pid_t pid) { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

// Two pipes become readable in one round of the loop. The handler that is called first closes the other pipe,
// and calls `then`.
struct Round {
  asio::io_context loop{1};
  std::unique_ptr<Descriptor> watched[2];
  UniqueFd writers[2];
  bool is_done = false;

  template <class Then>
  void begin(Then then) {
    for (int i : {0, 1}) {
      int ends[2];
      REQUIRE(pipe(ends) == 0);
      watched[i] = std::make_unique<Descriptor>(loop, ends[0]);
      writers[i] = UniqueFd(ends[1]);
      watched[i]->async_wait(Descriptor::wait_read, [this, i, then](const asio::error_code& error) {
        if (error || std::exchange(is_done, true)) return;
        watched[1 - i].reset();
        then();
      });
    }
    for (const UniqueFd& writer : writers) REQUIRE(write(writer.get(), "x", 1) == 1);
  }
};

TEST_CASE("The death of a process is not mistaken for an event of a descriptor that was closed just before") {
  Round round;
  Process process;
  Descriptor death(round.loop);
  bool died = false;
  round.begin([&] {
    UniqueFd pidfd = pidfd_of(process.pid());
    REQUIRE_FALSE(hand_over(pidfd, death));
    await_death(death, [&died] { died = true; });
  });
  round.loop.run_for(100ms);
  REQUIRE(round.is_done);
  CHECK_FALSE(died);
  process.end();
  round.loop.run_for(5s);
  CHECK(died);
}

}  // namespace
}  // namespace sharedgpu::test
