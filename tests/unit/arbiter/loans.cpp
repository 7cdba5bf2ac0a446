// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/loans.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

constexpr SessionId kLender{1};
constexpr SessionId kBorrower{2};
constexpr SessionId kStranger{3};
constexpr TenantId kOurs{10};
constexpr TenantId kTheirs{11};

Borrow wish(std::uint64_t request, std::uint64_t lender = 77) {
  return {.request = request, .name = {.lender = lender, .loan = 5}, .piece = 3};
}

struct Relay : Loans {
  Relay() { announce(kLender, kOurs, 77); }
};

}  // namespace

TEST_CASE("A wish goes to the lender and its answer back") {
  Relay loans;
  const Loans::Passed asked = loans.borrow(kBorrower, kOurs, wish(9), false);
  REQUIRE(asked.to == kLender);
  REQUIRE(asked.message.type == MessageType::wanted);
  const auto wanted = asked.message.as<Wanted>();
  CHECK(wanted.name == LoanName{77, 5});
  CHECK(wanted.piece == 3);
  const Lend lend{.ticket = wanted.ticket, .outcome = LoanOutcome::given, .pieces = 4, .size = mebibytes(64)};
  CHECK_FALSE(loans.lend(kStranger, lend));  // it was not asked
  auto answer = loans.lend(kLender, lend);
  REQUIRE(answer);
  CHECK(answer->to == kBorrower);
  CHECK(answer->message.as<Lent>().request == 9);
  CHECK(answer->message.as<Lent>().outcome == LoanOutcome::given);
  CHECK(answer->message.as<Lent>().pieces == 4);
  CHECK_FALSE(loans.lend(kLender, lend));  // answered already
}

TEST_CASE("Another tenant finds no lender, whatever it knows") {
  Relay loans;
  loans.announce(kStranger, kTheirs, 78);
  const Loans::Passed asked = loans.borrow(kStranger, kTheirs, wish(1), false);
  CHECK(asked.to == kStranger);
  CHECK(asked.message.as<Lent>().outcome == LoanOutcome::unknown);
  // Not even under the same number.
  loans.announce(kStranger, kTheirs, 77);
  CHECK(loans.borrow(kBorrower, kOurs, wish(1), false).to == kLender);
  CHECK(loans.borrow(kBorrower, kOurs, wish(1, 78), false).to == kBorrower);
}

TEST_CASE("While lenders may come back, who asks is told to try later") {
  Relay loans;
  CHECK(loans.borrow(kBorrower, kOurs, wish(1, 5), true).message.as<Lent>().outcome == LoanOutcome::later);
}

TEST_CASE("Who waits for a lender that ends is told") {
  Relay loans;
  const auto ticket = loans.borrow(kBorrower, kOurs, wish(4), false).message.as<Wanted>().ticket;
  const auto told = loans.forget(kLender);
  REQUIRE(told.size() == 1);
  CHECK(told[0].to == kBorrower);
  CHECK(told[0].message.as<Lent>().request == 4);
  CHECK(told[0].message.as<Lent>().outcome == LoanOutcome::unknown);
  CHECK_FALSE(
      loans.lend(kLender, {.ticket = ticket, .outcome = LoanOutcome::given, .pieces = 1, .size = {}}));
}

TEST_CASE("An answer for a borrower that has ended is dropped") {
  Relay loans;
  const auto ticket = loans.borrow(kBorrower, kOurs, wish(4), false).message.as<Wanted>().ticket;
  CHECK(loans.forget(kBorrower).empty());
  CHECK_FALSE(
      loans.lend(kLender, {.ticket = ticket, .outcome = LoanOutcome::given, .pieces = 1, .size = {}}));
}

TEST_CASE("A lender that came back under a new session is the one that is asked") {
  Relay loans;
  loans.announce(SessionId{4}, kOurs, 77);
  CHECK(loans.forget(kLender).empty());
  CHECK(loans.borrow(kBorrower, kOurs, wish(1), false).to == SessionId{4});
  loans.announce(SessionId{4}, kOurs, 79);
  CHECK(loans.borrow(kBorrower, kOurs, wish(1), false).to == kBorrower);
}

TEST_CASE("Nobody asks or is asked for more than so much at once") {
  Relay loans;
  for (unsigned i = 0; i < Loans::kMostAsked; ++i)
    REQUIRE(loans.borrow(kBorrower, kOurs, wish(i), false).to == kLender);
  const Loans::Passed refused = loans.borrow(kBorrower, kOurs, wish(99), false);
  CHECK(refused.to == kBorrower);
  CHECK(refused.message.as<Lent>().outcome == LoanOutcome::failed);
  unsigned asked = Loans::kMostAsked;
  for (std::uint64_t session = 100; session < 200; ++session)
    if (loans.borrow(SessionId{session}, kOurs, wish(1), false).to == kLender) ++asked;
  CHECK(asked == Loans::kMostOwed);
  REQUIRE(loans.lend(kLender, {.ticket = 1, .outcome = LoanOutcome::failed, .pieces = 0, .size = {}}));
  CHECK(loans.borrow(kBorrower, kOurs, wish(1), false).to == kLender);
}

TEST_CASE("A lender that has ended is asked no more, and has no number left") {
  Relay loans;
  CHECK(loans.forget(kLender).empty());
  CHECK(loans.borrow(kBorrower, kOurs, wish(1), false).to == kBorrower);
  CHECK(loans.forget(kLender).empty());
}

TEST_CASE("A lender that takes another number keeps nobody from the one that it had") {
  Relay loans;
  loans.announce(SessionId{4}, kOurs, 77);
  loans.announce(kLender, kOurs, 79);
  CHECK(loans.borrow(kBorrower, kOurs, wish(1), false).to == SessionId{4});
  CHECK(loans.borrow(kBorrower, kOurs, wish(1, 79), false).to == kLender);
  loans.announce(kLender, kOurs, 79);  // as before
  CHECK(loans.borrow(kBorrower, kOurs, wish(1, 79), false).to == kLender);
}

TEST_CASE("The end of a session concerns its own wishes alone") {
  Relay loans;
  loans.announce(SessionId{4}, kOurs, 78);
  REQUIRE(loans.borrow(kBorrower, kOurs, wish(1), false).to == kLender);
  REQUIRE(loans.borrow(kStranger, kOurs, wish(2, 78), false).to == SessionId{4});
  REQUIRE(loans.borrow(kLender, kOurs, wish(3), false).to == kLender);  // of itself
  const auto told = loans.forget(kLender);
  REQUIRE(told.size() == 1);
  CHECK(told[0].to == kBorrower);
  CHECK(told[0].message.as<Lent>().request == 1);
  CHECK(loans.lend(SessionId{4}, {.ticket = 2, .outcome = LoanOutcome::given, .pieces = 1, .size = {}})->to ==
        kStranger);
}

TEST_CASE("Borrowers that end make room for others") {
  Relay loans;
  for (unsigned i = 0; i < Loans::kMostOwed; ++i)
    REQUIRE(loans.borrow(SessionId{100 + i}, kOurs, wish(1), false).to == kLender);
  REQUIRE(loans.borrow(kBorrower, kOurs, wish(1), false).to == kBorrower);
  CHECK(loans.forget(SessionId{100}).empty());
  CHECK(loans.borrow(kBorrower, kOurs, wish(1), false).to == kLender);
}

}  // namespace sharedgpu
