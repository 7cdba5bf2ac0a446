// SPDX-License-Identifier: Apache-2.0
// Compares the bytes that exchanges move for cyclic programs with the optimum.
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "bench/needs/replay.h"
#include "bench/needs/traces.h"

using namespace sharedgpu;

namespace {

// `early`: the part of the window that each exchange may bring in early.
void check_bytes(bool sizes, double early) {
  const auto handles = *rc::gen::inRange(60u, 200u);
  const needs::Trace trace = needs::random_cycles(*rc::gen::arbitrary<std::uint64_t>(), handles, 20, sizes);
  const Bytes whole = needs::footprint(trace);
  // The optimum may move parts of handles. So the window is a multiple of the handle size. If sizes differ,
  // the window is smaller than the footprint by several handles.
  Bytes window{whole.count * *rc::gen::inRange(50u, sizes ? 85u : 95u) / 100};
  if (!sizes) window = Bytes{window.count - window.count % needs::largest(trace).count};
  const Bytes most{static_cast<std::uint64_t>(static_cast<double>(window.count) * early)};
  const needs::Moved best = needs::optimum(trace, window);
  const needs::Moved moved = needs::with_plans(trace, window, most);
  RC_LOG() << handles << " handles, window " << (window.count >> 20) << " of " << (whole.count >> 20)
           << " MiB: " << moved.bytes.count << " bytes instead of " << best.bytes.count << '\n';
  // The first two cycles do not count. At the end of these cycles, the optimum may have other handles on the
  // GPU.
  RC_ASSERT(moved.bytes <= Bytes{best.bytes.count * 11 / 10} + Bytes{4 * needs::largest(trace).count});
}

}  // namespace

TEST_CASE("after two cycles, a repeated program moves at most a tenth more bytes than necessary",
          "[oversize]") {
  CHECK(rc::check("one handle per exchange", [] { check_bytes(false, 0); }));
  CHECK(rc::check("one handle per exchange, sizes differ", [] { check_bytes(true, 0); }));
  CHECK(rc::check("a fiftieth of the window per exchange", [] { check_bytes(false, 0.02); }));
}
