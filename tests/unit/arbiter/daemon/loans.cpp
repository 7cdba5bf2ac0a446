// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/loans.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

constexpr SessionId kLender{1};
constexpr SessionId kOther{2};
constexpr TenantId kOurs{10};
constexpr TenantId kTheirs{11};

TEST_CASE("A lender is found by its tenant and number, and by no other tenant") {
  Loans loans;
  loans.announce(kLender, kOurs, 77);
  CHECK(loans.find(kOurs, 77) == kLender);
  CHECK_FALSE(loans.find(kOurs, 78));
  CHECK_FALSE(loans.find(kTheirs, 77));
  loans.announce(kOther, kTheirs, 77);  // a lender of another tenant has the same number
  CHECK(loans.find(kOurs, 77) == kLender);
  CHECK(loans.find(kTheirs, 77) == kOther);
}

TEST_CASE("A lender that reconnected is found by its new session") {
  Loans loans;
  loans.announce(kLender, kOurs, 77);
  loans.announce(kOther, kOurs, 77);
  CHECK(loans.find(kOurs, 77) == kOther);
  loans.forget(kLender);
  CHECK(loans.find(kOurs, 77) == kOther);
  loans.forget(kOther);
  CHECK_FALSE(loans.find(kOurs, 77));
  loans.forget(kOther);
}

TEST_CASE("A lender that takes another number frees its earlier number") {
  Loans loans;
  loans.announce(kLender, kOurs, 77);
  loans.announce(kLender, kOurs, 79);
  CHECK_FALSE(loans.find(kOurs, 77));
  CHECK(loans.find(kOurs, 79) == kLender);
  loans.announce(kOther, kOurs, 77);
  loans.announce(kLender, kOurs, 79);  // the same number as before
  CHECK(loans.find(kOurs, 77) == kOther);
  CHECK(loans.find(kOurs, 79) == kLender);
}

}  // namespace
}  // namespace sharedgpu
