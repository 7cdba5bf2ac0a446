// SPDX-License-Identifier: Apache-2.0
// Memory that is pinned in place because other processes or devices use its physical address.
#include <catch2/catch.hpp>

#include "tests/unit/interposer/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

// A large block of four handles, and an arena with small blocks.
struct Settling : World {
  static constexpr Bytes kLarge = kibibytes(512);
  CUdeviceptr large = 0;
  CUdeviceptr small = 0;

  Settling() {
    REQUIRE(memory.allocate(&large, kLarge) == CUDA_SUCCESS);
    REQUIRE(memory.allocate(&small, kibibytes(3)) == CUDA_SUCCESS);
    fill(large, kLarge, 1);
    fill(small, kibibytes(3), 2);
  }
  Bytes footprint() const { return memory.use().footprint(); }
  void evict_all() {
    memory.set_allowed({});
    memory.evict();
  }
  bool restore_all() {
    memory.set_allowed(memory.use().swappable);
    return memory.restore();
  }
};

}  // namespace

TEST_CASE("memory that is pinned in place is not evicted, and counts as pinned", "[settle]") {
  Settling t;
  const Bytes before = t.footprint();
  const Physical physical = t.device.mapped_at(t.large);
  REQUIRE(t.memory.settle(t.large, t.kLarge) == CUDA_SUCCESS);
  CHECK(t.memory.use().pinned == t.kLarge);
  CHECK(t.footprint() == before);
  CHECK(t.books.last.pinned == t.kLarge);
  t.evict_all();
  CHECK_FALSE(t.books.stuck);
  CHECK(t.memory.use().resident == Bytes{});
  CHECK(t.device.physical() == t.kLarge);
  CHECK(holds(t.large, t.kLarge, 1));
  REQUIRE(t.restore_all());
  CHECK(t.device.mapped_at(t.large) == physical);
  CHECK(holds(t.small, kibibytes(3), 2));
  CHECK(t.device.misuse().empty());
}

TEST_CASE("only the handles in the range are pinned in place, and only once", "[settle]") {
  Settling t;
  REQUIRE(t.memory.settle(t.large + kibibytes(128).count, {1}) == CUDA_SUCCESS);
  CHECK(t.memory.use().pinned == kibibytes(128));
  const unsigned asked = t.books.asked;
  REQUIRE(t.memory.settle(t.large + kibibytes(200).count, kibibytes(20)) == CUDA_SUCCESS);
  CHECK(t.books.asked == asked);
  REQUIRE(t.memory.settle(t.large, t.kLarge) == CUDA_SUCCESS);
  CHECK(t.memory.use().pinned == t.kLarge);
}

TEST_CASE("the neighbours of a range of whole handles are not pinned", "[settle]") {
  Settling t;
  REQUIRE(t.memory.settle(t.large + kibibytes(128).count, kibibytes(256)) == CUDA_SUCCESS);
  CHECK(t.memory.use().pinned == kibibytes(256));
  t.evict_all();
  CHECK(t.device.mapped_at(t.large) == 0);
  CHECK(t.device.mapped_at(t.large + kibibytes(384).count) == 0);
  CHECK(t.device.physical() == kibibytes(256));
}

TEST_CASE("only allocated memory that is on the GPU can be settled", "[settle]") {
  Settling t;
  CHECK(t.memory.settle(t.large, t.kLarge + Bytes{1}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.memory.settle(t.large + t.kLarge.count, {1}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.memory.settle(42, {1}) == CUDA_ERROR_INVALID_VALUE);
  t.evict_all();
  CHECK(t.memory.settle(t.large, t.kLarge) == CUDA_ERROR_NOT_READY);
  CHECK(t.memory.use().pinned == Bytes{});
  REQUIRE(t.restore_all());
  CHECK(t.memory.settle(t.large, t.kLarge) == CUDA_SUCCESS);
}

TEST_CASE("memory whose pin request is refused stays swappable", "[settle]") {
  Settling t;
  t.books.settles = false;
  const MemoryUse before = t.memory.use();
  CHECK(t.memory.settle(t.large, t.kLarge) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(t.memory.use().swappable == before.swappable);
  CHECK(t.memory.use().pinned == Bytes{});
  CHECK(t.memory.use().settling == Bytes{});
  t.evict_all();
  CHECK(t.device.physical() == Bytes{});
  REQUIRE(t.restore_all());
  CHECK(holds(t.large, t.kLarge, 1));
}

TEST_CASE("freed memory is no longer pinned", "[settle]") {
  Settling t;
  REQUIRE(t.memory.settle(t.large, t.kLarge) == CUDA_SUCCESS);
  REQUIRE(t.memory.settle(t.small, {1}) == CUDA_SUCCESS);
  const unsigned synchronizations = t.device.synchronizations();
  CHECK(t.memory.free(t.large) == CUDA_SUCCESS);
  CHECK(t.device.synchronizations() > synchronizations);
  CHECK(t.memory.free(t.small) == CUDA_SUCCESS);
  CHECK(t.footprint() == Bytes{});
  CHECK(t.device.physical() == Bytes{});
}

TEST_CASE("the pieces of an allocation are its handles", "[settle]") {
  Settling t;
  Piece piece;
  CHECK(t.memory.export_piece(t.large, 0, &piece) == CUDA_ERROR_INVALID_VALUE);  // refused, since the memory
                                                                                 // is not pinned and may move
  REQUIRE(t.memory.settle(t.large, t.kLarge) == CUDA_SUCCESS);
  for (unsigned i = 0; i < 4; ++i) {
    REQUIRE(t.memory.export_piece(t.large, i, &piece) == CUDA_SUCCESS);
    CHECK(piece.count == 4);
    CHECK(piece.total == t.kLarge);
    CHECK(piece.size == kibibytes(128));
    CHECK(piece.offset == Bytes{});
    CHECK(static_cast<Physical>(piece.descriptor) == t.device.mapped_at(t.large + i * piece.size.count));
  }
  CHECK(t.memory.export_piece(t.large, 4, &piece) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.memory.restore());  // restore() waits for no other thread

  CUdeviceptr second = 0;
  REQUIRE(t.memory.allocate(&second, {512}) == CUDA_SUCCESS);
  REQUIRE(t.memory.settle(second, {512}) == CUDA_SUCCESS);
  REQUIRE(t.memory.export_piece(second, 0, &piece) == CUDA_SUCCESS);
  CHECK(piece.count == 1);
  CHECK(t.device.mapped_at(second - piece.offset.count) == static_cast<Physical>(piece.descriptor));
  t.device.fail_call(1);
  CHECK(t.memory.export_piece(second, 0, &piece) == CUDA_ERROR_UNKNOWN);
  CHECK(t.memory.free(second) == CUDA_SUCCESS);
  CHECK(t.memory.export_piece(second, 0, &piece) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("memory that another process has open stays until that process closes it", "[settle]") {
  Settling t;
  REQUIRE(t.memory.settle(t.large, t.kLarge) == CUDA_SUCCESS);
  t.books.lent = t.large;
  CHECK(t.memory.free(t.large) == CUDA_SUCCESS);
  CHECK_FALSE(t.memory.find(t.large).has_value());
  CHECK(t.memory.free(t.large) == CUDA_ERROR_INVALID_VALUE);
  CHECK(t.memory.settle(t.large, t.kLarge) == CUDA_ERROR_INVALID_VALUE);
  Piece piece;
  CHECK(t.memory.export_piece(t.large, 0, &piece) == CUDA_ERROR_INVALID_VALUE);
  t.memory.tend_freed();
  CHECK(t.memory.use().pinned == t.kLarge);
  CHECK(t.device.physical() >= t.kLarge);
  t.books.lent = 0;
  t.memory.tend_freed();
  CHECK(t.memory.use().pinned == Bytes{});
}

TEST_CASE("memory that the program has mapped is pinned in place by the addresses of its mappings",
          "[settle]") {
  Settling t;
  ProgramMemory::Id id = 0;
  const Bytes size = kibibytes(256);
  REQUIRE(t.program.create(&id, size, {}) == CUDA_SUCCESS);
  const CUdeviceptr at = t.device.reserve_for_program(size);
  REQUIRE(t.program.map(at, size, id) == CUDA_SUCCESS);
  CUmemAccessDesc access = {};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  REQUIRE(t.program.set_access(at, &access, 1) == CUDA_SUCCESS);
  fill(at, size, 3);

  CHECK(t.memory.settle(at + 1, size) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(t.memory.settle(at + kibibytes(130).count, kibibytes(4)) == CUDA_SUCCESS);
  CHECK(t.memory.use().pinned == kibibytes(128));
  const Physical physical = t.device.mapped_at(at + kibibytes(128).count);
  t.evict_all();
  CHECK(t.device.physical() == kibibytes(128));
  CHECK(t.device.mapped_at(at) == 0);
  CHECK(t.device.mapped_at(at + kibibytes(128).count) == physical);
  CHECK(t.memory.settle(at, size) == CUDA_ERROR_NOT_READY);
  REQUIRE(t.restore_all());
  CHECK(t.memory.settle(at, size) == CUDA_SUCCESS);
  CHECK(holds(at, size, 3));
  CHECK(t.device.misuse().empty());
}
