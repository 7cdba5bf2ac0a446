// SPDX-License-Identifier: Apache-2.0
// Locks belong to open files, so two open files in the test's process stand for two processes.
#include "interposer/shared_memory/lock_file.h"

#include <fcntl.h>

#include <catch2/catch.hpp>

#include "interposer/shared_memory/export.h"

using namespace sharedgpu;
using shared_memory::Exports;
using shared_memory::LockFile;

TEST_CASE("a lender sees which loans are held, and a borrower that the lender lives", "[lock_file]") {
  LockFile lender;
  REQUIRE(lender.create());
  CHECK_FALSE(lender.is_held(5));
  LockFile one;
  LockFile other;
  one.adopt(lender.for_importer());
  other.adopt(lender.for_importer());
  REQUIRE(one);
  one.hold(5);
  other.hold(5);
  other.hold(LockFile::kMostExports - 1);
  CHECK(lender.is_held(5));
  CHECK_FALSE(lender.is_held(6));
  CHECK(lender.is_held(LockFile::kMostExports - 1));
  one.let_go(5);
  CHECK(lender.is_held(5));
  other.drop();  // Linux also drops the locks of a process that ends
  CHECK_FALSE(lender.is_held(5));
  CHECK_FALSE(lender.is_held(LockFile::kMostExports - 1));
  CHECK(one.exporter_lives());
  lender.drop();
  CHECK_FALSE(one.exporter_lives());
}

TEST_CASE("exactly one borrower inherits a loan, and the next one after it", "[lock_file]") {
  LockFile lender;
  REQUIRE(lender.create());
  LockFile one;
  LockFile other;
  one.adopt(lender.for_importer());
  other.adopt(lender.for_importer());
  one.hold(5);
  other.hold(5);
  lender.drop();
  CHECK(one.inherit(5));
  CHECK(one.inherit(5));
  CHECK_FALSE(other.inherit(5));
  CHECK(other.inherit(6));
  one.let_go(5);
  CHECK(other.inherit(5));
}

namespace {

// One allocation of two handles at address 4096.
class TwoPieces final : public Memory {
 public:
  CUresult allocate(CUdeviceptr* /*address*/, Bytes /*size*/) override { return CUDA_ERROR_OUT_OF_MEMORY; }
  std::optional<CUresult> free(CUdeviceptr /*address*/) override { return std::nullopt; }
  std::optional<CUresult> free_unused(CUdeviceptr /*address*/) override { return std::nullopt; }
  CUresult free_with(Destruction& context, const std::vector<CUdeviceptr>& /*blocks*/) override {
    return context.carry_out();
  }
  std::optional<AddressRange> find(CUdeviceptr /*address*/) const override { return std::nullopt; }
  CUresult export_piece(CUdeviceptr base, unsigned index, Piece* piece) override {
    if (base != 4096 || index > 1) return CUDA_ERROR_INVALID_VALUE;
    piece->descriptor = fcntl(2, F_DUPFD_CLOEXEC, 0);
    piece->size = {index + 1};
    piece->count = 2;
    return CUDA_SUCCESS;
  }
  CUresult pin(Bytes /*size*/) override { return CUDA_SUCCESS; }
  void unpin(Bytes /*size*/) override {}
  void set_context_size(Bytes /*size*/) override {}
  MemoryUse use() const override { return {}; }
  void set_allowed(Bytes /*allowed*/) override {}
  Bytes allowed() const override { return {}; }
  bool evict() override { return true; }
  bool restore() override { return true; }
  void tend() override {}
};

Wanted wish(LoanName name, std::uint32_t piece) { return {.ticket = 3, .name = name, .piece = piece}; }

}  // namespace

TEST_CASE("the memory of a loan is given under the loan's name until it is freed", "[lock_file]") {
  TwoPieces memory;
  Exports exports;
  LoanName name;
  REQUIRE(exports.add(memory, 4096, name));
  LoanName again;
  REQUIRE(exports.add(memory, 4096, again));
  CHECK(name == again);
  CHECK(name.lender == exports.number());

  UniqueFd descriptor;
  Lend lend = exports.answer(wish(name, 1), descriptor);
  CHECK(lend.ticket == 3);
  CHECK(lend.outcome == LoanOutcome::given);
  CHECK(lend.pieces == 2);
  CHECK(lend.size == Bytes{2});
  CHECK(descriptor);
  descriptor.reset();
  CHECK(exports.answer(wish(name, 2), descriptor).outcome == LoanOutcome::failed);
  CHECK_FALSE(descriptor);
  CHECK(exports.answer(wish({name.lender, name.loan + 1}, 0), descriptor).outcome == LoanOutcome::unknown);
  CHECK(exports.answer(wish({name.lender + 1, name.loan}, 0), descriptor).outcome == LoanOutcome::unknown);

  REQUIRE(exports.answer(wish(name, kLien), descriptor).outcome == LoanOutcome::given);
  LockFile borrower;
  borrower.adopt(std::move(descriptor));
  borrower.hold(name.loan);
  CHECK_FALSE(exports.still_lent(8192));
  CHECK(exports.still_lent(4096));
  CHECK(exports.answer(wish(name, 0), descriptor).outcome == LoanOutcome::unknown);
  CHECK(exports.still_lent(4096));
  borrower.let_go(name.loan);
  CHECK_FALSE(exports.still_lent(4096));
  REQUIRE(exports.add(memory, 4096, again));
  CHECK(again != name);  // reused memory is a new export
}
