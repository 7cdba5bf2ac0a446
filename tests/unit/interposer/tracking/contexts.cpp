// SPDX-License-Identifier: Apache-2.0
#include "interposer/tracking/contexts.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;

namespace {

CUcontext context(std::uintptr_t number) { return reinterpret_cast<CUcontext>(number); }

}  // namespace

TEST_CASE("each context counts with the usual size, and with the additional sizes that the program sets",
          "[contexts]") {
  tracking::Contexts contexts;
  const Bytes usual = mebibytes(500);
  CHECK(contexts.size(0, usual) == Bytes{});
  contexts.add(context(1), 0, true);
  contexts.add(context(1), 0, true);  // retained again
  contexts.add(context(2), 0, false);
  contexts.add(context(3), 1, true);
  CHECK(contexts.size(0, usual) == mebibytes(1000));
  contexts.set_extra(context(1), CU_LIMIT_MALLOC_HEAP_SIZE, mebibytes(100));
  contexts.set_extra(context(1), CU_LIMIT_MALLOC_HEAP_SIZE, mebibytes(200));
  contexts.set_extra(context(2), CU_LIMIT_PRINTF_FIFO_SIZE, mebibytes(7));
  contexts.set_extra(context(9), CU_LIMIT_MALLOC_HEAP_SIZE, mebibytes(200));  // no such context
  CHECK(contexts.size(0, usual) == mebibytes(1207));
  CHECK(contexts.size(1, usual) == usual);
  contexts.remove(context(1));
  CHECK(contexts.size(0, usual) == mebibytes(507));
  contexts.remove(context(2));
  CHECK(contexts.size(0, usual) == Bytes{});
}
