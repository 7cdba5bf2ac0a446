// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/lending.h"

#include <sys/random.h>

namespace sharedgpu::session {
namespace {

std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) return 0;
  return number % Lien::kLoans;
}

}  // namespace

std::uint64_t Lending::number() {
  const std::lock_guard lock(mutex_);
  if (number_ == 0) number_ = random_number();
  return number_;
}

bool Lending::lend(Pinning& memory, CUdeviceptr base, LoanName& name) {
  const std::uint64_t lender = number();
  const std::lock_guard lock(mutex_);
  Loan& loan = loans_[base];
  if (loan.number == 0) loan = {.number = random_number(), .memory = &memory};
  if (lender == 0 || loan.number == 0) {
    loans_.erase(base);
    return false;
  }
  bases_[loan.number] = base;
  if (!lien_) lien_.create();
  name = {.lender = lender, .loan = loan.number};
  return true;
}

bool Lending::still_lent(CUdeviceptr base) {
  const std::lock_guard lock(mutex_);
  auto loan = loans_.find(base);
  if (loan == loans_.end()) return false;
  bases_.erase(loan->second.number);
  if (lien_.is_held(loan->second.number)) return true;
  loans_.erase(loan);
  return false;
}

Lend Lending::answer(const Wanted& wanted, UniqueFd& descriptor) {
  Lend lend{.ticket = wanted.ticket, .outcome = LoanOutcome::unknown, .pieces = 0, .size = {}};
  Pinning* memory = nullptr;
  CUdeviceptr base = 0;
  {
    const std::lock_guard lock(mutex_);
    auto found = bases_.find(wanted.name.loan);
    if (wanted.name.lender != number_ || found == bases_.end()) return lend;
    base = found->second;
    memory = loans_[base].memory;
    if (wanted.piece == kLien) descriptor = lien_.for_borrower();
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

}  // namespace sharedgpu::session
