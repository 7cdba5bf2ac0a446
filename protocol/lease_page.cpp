// SPDX-License-Identifier: Apache-2.0
#include "protocol/lease_page.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <climits>
#include <ctime>
#include <new>
#include <utility>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1
#endif

namespace sharedgpu {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

long futex(const std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), operation, value, timeout, nullptr,
                 0);
}

}  // namespace

LeasePageWriter::~LeasePageWriter() {
  if (page_ != nullptr) munmap(page_, LeasePage::kSize);
  if (fd_ >= 0) close(fd_);
}

LeasePageWriter::LeasePageWriter(LeasePageWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), page_(std::exchange(other.page_, nullptr)) {}

LeasePageWriter& LeasePageWriter::operator=(LeasePageWriter&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(page_, other.page_);
  return *this;
}

int LeasePageWriter::create() {
  const int memory = memfd_create("sharedgpu-lease", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  return memory < 0 ? errno : create(memory);
}

int LeasePageWriter::create(int memory) {
  auto fail = [memory] {
    int error = errno;
    close(memory);
    return error;
  };
  if (ftruncate(memory, LeasePage::kSize) != 0) return fail();
  void* address = mmap(nullptr, LeasePage::kSize, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (address == MAP_FAILED) return fail();
  // Linux before 5.1 lacks F_SEAL_FUTURE_WRITE, which keeps the session from writing to the page. The page is
  // safe without the seal, too. A session that writes to the page can only open its own gate, and a program
  // could also do this by removing the interposer.
  if (fcntl(memory, F_ADD_SEALS, kSizeSeals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0 &&
      fcntl(memory, F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    int error = fail();
    munmap(address, LeasePage::kSize);
    return error;
  }
  fd_ = memory;
  page_ = new (address) LeasePage;
  return 0;
}

void LeasePageWriter::set_open(bool open) {
  std::uint32_t value = page_->gate.load(std::memory_order_relaxed);
  if (LeasePage::is_open(value) == open) return;
  page_->gate.store(value + 1, std::memory_order_release);
  if (open) futex(page_->gate, FUTEX_WAKE, INT_MAX, nullptr);
}

void LeasePageWriter::set_contended(bool contended) {
  page_->contended.store(contended ? 1 : 0, std::memory_order_relaxed);
}

void LeasePageWriter::set_oversubscribed(bool oversubscribed, Nanoseconds queue) {
  using Microseconds = std::chrono::duration<std::uint32_t, std::micro>;
  page_->queue_us.store(std::chrono::duration_cast<Microseconds>(queue).count(), std::memory_order_relaxed);
  page_->oversubscribed.store(oversubscribed ? 1 : 0, std::memory_order_relaxed);
}

void LeasePageWriter::set_turn_ends(Nanoseconds at) {
  page_->turn_ends.store(at.count(), std::memory_order_relaxed);
}

bool LeasePageWriter::is_open() const {
  return LeasePage::is_open(page_->gate.load(std::memory_order_relaxed));
}

const LeasePage* map_lease_page(int fd, void* address) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return nullptr;
  int seals = fcntl(fd, F_GET_SEALS);
  if (info.st_size != static_cast<off_t>(LeasePage::kSize) || seals < 0 ||
      (seals & kSizeSeals) != kSizeSeals) {
    errno = EPROTO;
    return nullptr;
  }
  // Checks the page before it replaces the mapping at `address`.
  void* probe = mmap(nullptr, LeasePage::kSize, PROT_READ, MAP_SHARED, fd, 0);
  if (probe == MAP_FAILED) return nullptr;
  auto* page = static_cast<const LeasePage*>(probe);
  bool known = page->magic == LeasePage::kMagic && page->version == LeasePage{}.version;
  if (known && address == nullptr) return page;
  munmap(probe, LeasePage::kSize);
  if (!known) {
    errno = EPROTO;
    return nullptr;
  }
  void* mapped = mmap(address, LeasePage::kSize, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<const LeasePage*>(mapped);
}

void wake_gate(const LeasePage& page) { futex(page.gate, FUTEX_WAKE, INT_MAX, nullptr); }

void wait_gate(const LeasePage& page, std::uint32_t seen, Nanoseconds timeout) {
  timespec limit = {.tv_sec = static_cast<time_t>(timeout.count() / 1'000'000'000),
                    .tv_nsec = static_cast<long>(timeout.count() % 1'000'000'000)};
  futex(page.gate, FUTEX_WAIT, seen, &limit);
}

}  // namespace sharedgpu
