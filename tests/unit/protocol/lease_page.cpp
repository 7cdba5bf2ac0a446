// SPDX-License-Identifier: Apache-2.0
#include "protocol/lease_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cerrno>
#include <thread>

namespace sharedgpu {
namespace {

TEST_CASE("The session sees what the arbiter writes") {
  LeasePageWriter writer;
  REQUIRE(writer.create() == 0);
  const LeasePage* page = map_lease_page(writer.fd(), nullptr);
  REQUIRE(page != nullptr);
  CHECK_FALSE(LeasePage::is_open(page->gate.load()));
  writer.set_open(true);
  CHECK(LeasePage::is_open(page->gate.load()));
  std::uint32_t value = page->gate.load();
  writer.set_open(true);
  CHECK(page->gate.load() == value);
  writer.set_open(false);
  CHECK(page->gate.load() == value + 1);
  writer.set_contended(true);
  CHECK(page->contended.load() == 1);
  CHECK(page->oversubscribed.load() == 0);
  writer.set_oversubscribed(true);
  CHECK(page->oversubscribed.load() == 1);
  CHECK(page->queue_us.load() == 0);
  writer.set_oversubscribed(true, std::chrono::milliseconds(5));
  CHECK(page->oversubscribed.load() == 1);
  CHECK(page->queue_us.load() == 5000);
  writer.set_oversubscribed(false);
  CHECK(page->queue_us.load() == 0);
  CHECK(page->gate.load() == value + 1);
  munmap(const_cast<LeasePage*>(page), LeasePage::kSize);
}

TEST_CASE("The session can neither resize nor write the page") {
  LeasePageWriter writer;
  REQUIRE(writer.create() == 0);
  CHECK(ftruncate(writer.fd(), 0) != 0);
  CHECK(mmap(nullptr, LeasePage::kSize, PROT_READ | PROT_WRITE, MAP_SHARED, writer.fd(), 0) == MAP_FAILED);
  char byte = 1;
  CHECK(pwrite(writer.fd(), &byte, 1, 64) != 1);
}

TEST_CASE("A page replaces another page") {
  LeasePageWriter first, second;
  REQUIRE(first.create() == 0);
  REQUIRE(second.create() == 0);
  second.set_open(true);
  const LeasePage* page = map_lease_page(first.fd(), nullptr);
  REQUIRE(page != nullptr);
  CHECK(map_lease_page(second.fd(), const_cast<LeasePage*>(page)) == page);
  CHECK(LeasePage::is_open(page->gate.load()));
  munmap(const_cast<LeasePage*>(page), LeasePage::kSize);
}

TEST_CASE("A file that is not a lease page is not mapped") {
  int plain = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(ftruncate(plain, LeasePage::kSize) == 0);
  CHECK(map_lease_page(plain, nullptr) == nullptr);
  CHECK(errno == EPROTO);
  REQUIRE(fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  CHECK(map_lease_page(plain, nullptr) == nullptr);
  CHECK(errno == EPROTO);
  close(plain);
}

TEST_CASE("A waiter wakes when the gate opens") {
  LeasePageWriter writer;
  REQUIRE(writer.create() == 0);
  const LeasePage* page = map_lease_page(writer.fd(), nullptr);
  REQUIRE(page != nullptr);
  std::thread waiter([page] {
    for (std::uint32_t seen = page->gate.load(); !LeasePage::is_open(seen); seen = page->gate.load())
      wait_gate(*page, seen, std::chrono::seconds(60));
  });
  writer.set_open(true);
  waiter.join();
  CHECK(LeasePage::is_open(page->gate.load()));
  munmap(const_cast<LeasePage*>(page), LeasePage::kSize);
}

}  // namespace
}  // namespace sharedgpu
