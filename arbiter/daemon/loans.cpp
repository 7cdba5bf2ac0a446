// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/loans.h"

namespace sharedgpu {

void Loans::announce(SessionId session, TenantId tenant, std::uint64_t lender) {
  const Key key{tenant, lender};
  auto known = keys_.find(session);
  if (known != keys_.end() && known->second != key && lenders_[known->second] == session)
    lenders_.erase(known->second);
  keys_[session] = key;
  lenders_[key] = session;
}

Loans::Passed Loans::borrow(SessionId session, TenantId tenant, const Borrow& borrow, bool lenders_missing) {
  auto lender = lenders_.find({tenant, borrow.name.lender});
  if (lender == lenders_.end())
    return answer(session, {.request = borrow.request,
                            .outcome = lenders_missing ? LoanOutcome::later : LoanOutcome::unknown,
                            .pieces = 0,
                            .size = {}});
  if (counts_[session].asked >= kMostAsked || counts_[lender->second].owed >= kMostOwed)
    return answer(session,
                  {.request = borrow.request, .outcome = LoanOutcome::failed, .pieces = 0, .size = {}});
  ++counts_[session].asked;
  ++counts_[lender->second].owed;
  tickets_[++last_ticket_] = {.borrower = session, .request = borrow.request, .lender = lender->second};
  return {lender->second,
          Message::of(Wanted{.ticket = last_ticket_, .name = borrow.name, .piece = borrow.piece})};
}

std::optional<Loans::Passed> Loans::lend(SessionId session, const Lend& lend) {
  auto ticket = tickets_.find(lend.ticket);
  if (ticket == tickets_.end() || ticket->second.lender != session) return std::nullopt;
  Passed passed = answer(
      ticket->second.borrower,
      {.request = ticket->second.request, .outcome = lend.outcome, .pieces = lend.pieces, .size = lend.size});
  close(ticket);
  return passed;
}

std::vector<Loans::Passed> Loans::forget(SessionId session) {
  if (auto key = keys_.find(session); key != keys_.end()) {
    if (auto lender = lenders_.find(key->second); lender != lenders_.end() && lender->second == session)
      lenders_.erase(lender);
    keys_.erase(key);
  }
  std::vector<Passed> told;
  for (auto ticket = tickets_.begin(); ticket != tickets_.end();) {
    const Ticket& its = ticket->second;
    if (its.lender == session && its.borrower != session)
      told.push_back(answer(
          its.borrower, {.request = its.request, .outcome = LoanOutcome::unknown, .pieces = 0, .size = {}}));
    ticket = its.lender == session || its.borrower == session ? close(ticket) : std::next(ticket);
  }
  counts_.erase(session);
  return told;
}

Loans::Tickets::iterator Loans::close(Tickets::iterator ticket) {
  --counts_[ticket->second.borrower].asked;
  --counts_[ticket->second.lender].owed;
  return tickets_.erase(ticket);
}

}  // namespace sharedgpu
