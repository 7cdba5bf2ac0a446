// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/host_system.h"

#include <pthread.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>

using namespace sharedgpu;

TEST_CASE("memory comes aligned and empty, from whichever NUMA node there is", "[host]") {
  LinuxHost host(GENERATE(std::optional<unsigned>{}, std::optional<unsigned>{0},
                          std::optional<unsigned>{1023}, std::optional<unsigned>{~0u}));
  for (const unsigned threads : {1u, 8u, 100u}) {
    const Bytes size = mebibytes(20) + kibibytes(4);
    std::byte* const data = host.map(size, threads);
    REQUIRE(data != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(data) % mebibytes(2).count == 0);
    CHECK(data[0] == std::byte{0});
    std::memset(data, 1, size.count);
    host.unmap(data, size);
  }
}

TEST_CASE("map() refuses a size that no kernel can map", "[host]") {
  CHECK(LinuxHost().map({1ull << 60}, 1) == nullptr);
}

TEST_CASE("a thread is started without the program's signals, and joined", "[host]") {
  LinuxHost host;
  HostSystem::Thread thread;
  host.join(thread);  // returns at once without a thread
  sigset_t mask;
  sigemptyset(&mask);
  REQUIRE(host.start(
      thread,
      [](void* seen) -> void* {
        pthread_sigmask(SIG_SETMASK, nullptr, static_cast<sigset_t*>(seen));
        return nullptr;
      },
      &mask));
  CHECK(thread.running);
  host.join(thread);
  CHECK_FALSE(thread.running);
  CHECK(sigismember(&mask, SIGINT) == 1);
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  CHECK(sigismember(&mask, SIGINT) == 0);
}
