// SPDX-License-Identifier: Apache-2.0
#include "protocol/status.h"

#include <catch2/catch.hpp>
#include <cerrno>

namespace sharedgpu {
namespace {

TEST_CASE("A status is success until it is given a code") {
  const Status success;
  CHECK(success.ok());
  CHECK(success.code() == 0);
  CHECK(success.message().empty());

  const Status wrong(EINVAL, "Quantum: not a time");
  CHECK_FALSE(wrong.ok());
  CHECK(wrong.code() == EINVAL);
  CHECK(wrong.message() == "Quantum: not a time");
}

TEST_CASE("The failure of a call names its subject and its reason") {
  const Status full = Status::of_errno(ENOSPC, "/var/lib/ledger");
  CHECK_FALSE(full.ok());
  CHECK(full.code() == ENOSPC);
  CHECK(full.message() == "/var/lib/ledger: No space left on device");
}

}  // namespace
}  // namespace sharedgpu
