// SPDX-License-Identifier: Apache-2.0
#include "interposer/shared_memory/export.h"

#include <sys/random.h>

namespace sharedgpu::shared_memory {
namespace {

std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) return 0;
  return number % LockFile::kMostExports;
}

}  // namespace

std::uint64_t Exports::number() {
  const std::lock_guard lock(mutex_);
  if (number_ == 0) number_ = random_number();
  return number_;
}

bool Exports::add(Pinning& memory, CUdeviceptr base, LoanName& name) {
  const std::uint64_t exporter = number();
  const std::lock_guard lock(mutex_);
  Exported& its = exported_[base];
  if (its.number == 0) its = {.number = random_number(), .memory = &memory};
  if (exporter == 0 || its.number == 0) {
    exported_.erase(base);
    return false;
  }
  bases_[its.number] = base;
  if (!lock_file_) lock_file_.create();
  name = {.lender = exporter, .loan = its.number};
  return true;
}

bool Exports::still_lent(CUdeviceptr base) {
  const std::lock_guard lock(mutex_);
  const auto found = exported_.find(base);
  if (found == exported_.end()) return false;
  bases_.erase(found->second.number);
  if (lock_file_.is_held(found->second.number)) return true;
  exported_.erase(found);
  return false;
}

Lend Exports::answer(const Wanted& wanted, UniqueFd& descriptor) {
  Lend lend{.ticket = wanted.ticket, .outcome = LoanOutcome::unknown, .pieces = 0, .size = {}};
  Pinning* memory = nullptr;
  CUdeviceptr base = 0;
  {
    const std::lock_guard lock(mutex_);
    auto found = bases_.find(wanted.name.loan);
    if (wanted.name.lender != number_ || found == bases_.end()) return lend;
    base = found->second;
    memory = exported_[base].memory;
    if (wanted.piece == kLien) descriptor = lock_file_.for_importer();
  }
  if (wanted.piece != kLien) {
    Piece piece;
    if (memory->export_piece(base, wanted.piece, &piece) == CUDA_SUCCESS) {
      descriptor.reset(piece.descriptor);
      lend.pieces = piece.count;
      lend.size = piece.size;
    }
  }
  lend.outcome = descriptor ? LoanOutcome::given : LoanOutcome::failed;
  return lend;
}

}  // namespace sharedgpu::shared_memory
