// SPDX-License-Identifier: Apache-2.0
// Who still has borrowed memory open: locks in a file that lender and borrowers share, one byte a loan.
//
// The kernel drops the locks of a process that dies, however it does, so nobody has to tell anybody. The
// locks belong to the open file (F_OFD_SETLK), of which every process has one of its own. Not thread-safe.
#pragma once

#include <cstdint>

#include "protocol/channel.h"

namespace sharedgpu::session {

class Lien {
 public:
  // Loans are numbered below this; the locks of the lender and of heirs lie above.
  static constexpr std::uint64_t kLoans = std::uint64_t{1} << 61;

  // The lender's: makes the file. False: it cannot be made.
  bool create();
  // An open file of its own for a borrower, to be sent; empty: there can be none.
  UniqueFd for_borrower() const;
  // The borrower's: takes over what was sent.
  void adopt(UniqueFd file) { file_ = static_cast<UniqueFd&&>(file); }
  explicit operator bool() const { return static_cast<bool>(file_); }
  // In the child of a fork, whose copy would keep the locks.
  void drop() { file_.reset(); }

  // For the lender: whether a borrower holds the loan.
  bool is_held(std::uint64_t loan) const;

  // For a borrower.
  void hold(std::uint64_t loan) const;
  void let_go(std::uint64_t loan) const;
  bool lender_lives() const;
  // The lender is dead: whether this process is the one that answers for the loan now.
  bool inherit(std::uint64_t loan) const;

 private:
  UniqueFd file_;
};

}  // namespace sharedgpu::session
