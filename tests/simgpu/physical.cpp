// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/physical.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "tests/simgpu/board.h"
#include "tests/simgpu/errors.h"

namespace sharedgpu::simgpu {
namespace {

constexpr char kName[] = "simgpu-memory";
constexpr char kFile[] = "/memfd:simgpu-memory";  // the name in /proc

// The file position of a shared descriptor encodes the piece's offset and size, in granules of 2 MiB.
constexpr unsigned kGranuleBits = 21;
off_t position_of(std::uint64_t offset, Bytes size) {
  return static_cast<off_t>(offset >> kGranuleBits | size.count >> kGranuleBits << 32);
}

// Opens the file again, since a duplicate of the descriptor would share its file position.
UniqueFd reopen(int file) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  return UniqueFd(open(path, O_RDWR | O_CLOEXEC));
}

}  // namespace

Physical::Physical(SharedDevice& device, int number, UniqueFd file, std::uint64_t offset, Bytes size)
    : device_(&device), number_(number), imported_(std::move(file)), offset_(offset), size_(size) {
  move_out_of_the_way(imported_);
  require(device.hold(name(), size), CUDA_ERROR_OUT_OF_MEMORY);
  shared_ = exportable = true;
}

SharedPiece Physical::name() const {
  struct stat info = {};
  require(fstat(file(), &info) == 0, CUDA_ERROR_OPERATING_SYSTEM);
  return {info.st_ino, offset_};
}

Described describe(int descriptor) {
  char path[64];
  char target[64] = {};
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  require(readlink(path, target, sizeof target - 1) > 0 && std::strncmp(target, kFile, sizeof kFile - 1) == 0,
          CUDA_ERROR_INVALID_VALUE);
  const auto position = static_cast<std::uint64_t>(lseek(descriptor, 0, SEEK_CUR));
  const std::uint64_t offset = (position & 0xffffffff) << kGranuleBits;
  const Bytes size{position >> 32 << kGranuleBits};
  require(size.count > 0, CUDA_ERROR_INVALID_VALUE);
  UniqueFd file = reopen(descriptor);
  require(static_cast<bool>(file), CUDA_ERROR_OPERATING_SYSTEM);
  struct stat info = {};
  require(fstat(file.get(), &info) == 0, CUDA_ERROR_OPERATING_SYSTEM);
  return {std::move(file), {info.st_ino, offset}, size};
}

Physical::~Physical() {
  if (!shared_) {
    store_->release(offset_, size_);
  } else if (device_->let_go(name())) {
    fallocate(file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset_),
              static_cast<off_t>(size_.count));
  }
}

int Physical::file() const { return store_ != nullptr ? store_->file_ : imported_.get(); }

int Physical::device() const { return store_ != nullptr ? store_->number_ : number_; }

int Physical::share() {
  std::lock_guard lock(mutex_);
  UniqueFd descriptor = reopen(file());
  require(static_cast<bool>(descriptor), CUDA_ERROR_OPERATING_SYSTEM);
  require(lseek(descriptor.get(), position_of(offset_, size_), SEEK_SET) >= 0, CUDA_ERROR_OPERATING_SYSTEM);
  if (!shared_) {
    device_ = &store_->device_;
    require(device_->share(name(), size_), CUDA_ERROR_OUT_OF_MEMORY);
    shared_ = true;
  }
  return descriptor.release();
}

PhysicalStore::PhysicalStore(SharedDevice& device, int number, Charge charge, std::string board)
    : device_(device),
      number_(number),
      charge_(charge),
      board_(std::move(board)),
      file_(memfd_create(kName, MFD_CLOEXEC)) {
  require(file_ >= 0, CUDA_ERROR_OPERATING_SYSTEM);
}

PhysicalPtr PhysicalStore::create(Bytes size) {
  require(size.count > 0 && size.count % kGranule.count == 0, CUDA_ERROR_INVALID_VALUE);
  require(charge_ == Charge::none || device_.charge(size), CUDA_ERROR_OUT_OF_MEMORY);
  std::lock_guard lock(mutex_);
  std::vector<std::uint64_t>& same_size = free_[size];
  if (!same_size.empty()) {
    std::uint64_t offset = same_size.back();
    same_size.pop_back();
    return std::make_shared<Physical>(shared_from_this(), offset, size);
  }
  std::uint64_t offset = file_size_;
  if (ftruncate(file_, static_cast<off_t>(offset + size.count)) != 0 ||
      (!board_.empty() && !take_on_board(board_, file_, offset, size))) {
    if (charge_ == Charge::device) device_.give_back(size);
    throw Error{CUDA_ERROR_OUT_OF_MEMORY};
  }
  file_size_ += size.count;
  return std::make_shared<Physical>(shared_from_this(), offset, size);
}

void PhysicalStore::release(std::uint64_t offset, Bytes size) {
  auto at = static_cast<off_t>(offset);
  void* piece = mmap(nullptr, size.count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_, at);
  if (piece != MAP_FAILED) {
    std::memset(piece, 0, size.count);
    munmap(piece, size.count);
    std::lock_guard lock(mutex_);
    free_[size].push_back(offset);
  } else {
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, static_cast<off_t>(size.count));
  }
  if (charge_ == Charge::device) device_.give_back(size);
}

}  // namespace sharedgpu::simgpu
