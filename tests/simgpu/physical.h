// SPDX-License-Identifier: Apache-2.0
// The physical memory of one device that this process has allocated.
//
// The memory is one memfd. Released memory is zeroed at once, and this process reuses its pages. So the
// host allocates each page only once, and a simulated eviction costs about as much as a real one. Safe from
// any thread.
//
// A process shares a piece by sending a descriptor. For each descriptor, the memfd is opened once more, and
// the file position of the descriptor encodes the offset and size of the piece. A shared piece is charged
// once for all processes that hold it, and its offset in the memfd is not reused.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "protocol/channel.h"
#include "tests/simgpu/shared_device.h"

namespace sharedgpu::simgpu {

inline constexpr Bytes kGranule = mebibytes(2);
// Used in place of a device number: physical memory of the host, which cuMemCreate can create, too.
inline constexpr int kHostNumber = static_cast<int>(kMostDevices);

class PhysicalStore;

// A piece of device memory, zeroed when it is created, and freed with the last reference.
class Physical {
 public:
  Physical(std::shared_ptr<PhysicalStore> store, std::uint64_t offset, Bytes size)
      : store_(std::move(store)), offset_(offset), size_(size) {}
  // A piece at `offset` in the memory file of another process. `number` is the device's number in this
  // process.
  Physical(SharedDevice& device, int number, UniqueFd file, std::uint64_t offset, Bytes size);
  ~Physical();
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;
  Bytes size() const { return size_; }
  int device() const;
  int file() const;
  std::uint64_t offset() const { return offset_; }

  // A descriptor of the piece for other processes; the caller closes it.
  int share();
  SharedPiece name() const;
  bool exportable = false;  // cuMemExportToShareableHandle may export the piece

 private:
  std::shared_ptr<PhysicalStore> store_;  // null if the piece is imported
  SharedDevice* device_ = nullptr;        // the device of an imported or shared piece
  int number_ = 0;                        // the device number of an imported piece
  UniqueFd imported_;
  std::uint64_t offset_;
  Bytes size_;
  std::mutex mutex_;
  bool shared_ = false;
};
using PhysicalPtr = std::shared_ptr<Physical>;

// The piece to which a descriptor refers. The piece may belong to this process or to another one.
struct Described {
  UniqueFd file;
  SharedPiece piece;
  Bytes size;
};
// Throws CUDA_ERROR_INVALID_VALUE if `descriptor` is not the descriptor of a piece.
Described describe(int descriptor);

class PhysicalStore : public std::enable_shared_from_this<PhysicalStore> {
 public:
  // `none`: the memory does not count as used memory of the device.
  enum class Charge { device, none };
  // `board`: a simgpu-board's socket, or empty.
  PhysicalStore(SharedDevice& device, int number, Charge charge = Charge::device, std::string board = {});
  // Throws CUDA_ERROR_OUT_OF_MEMORY.
  PhysicalPtr create(Bytes size);

 private:
  friend class Physical;
  void release(std::uint64_t offset, Bytes size);

  SharedDevice& device_;
  int number_;
  Charge charge_;
  const std::string board_;
  int file_;
  std::mutex mutex_;
  std::uint64_t file_size_ = 0;
  std::map<Bytes, std::vector<std::uint64_t>> free_;  // offsets of free pieces, by size; they are zeroed
};

}  // namespace sharedgpu::simgpu
