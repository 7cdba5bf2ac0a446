// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "tests/programs/kernels_ptx.h"
#include "tests/simgpu/kernels.h"
#include "tests/simgpu/ptx.h"
#include "tests/simgpu/settings.h"

namespace sharedgpu::simgpu {

TEST_CASE("PTX entries and their parameters are read") {
  auto entries = parse_ptx(R"(// a comment with .entry in it
.version 7.0 /* and .entry another */
.target sm_70
.address_size 64
.func helper(.param .u64 x) { ret; }
.visible .entry one(.param .u64 .ptr .global .align 8 one_p, .param .f32 one_f,
  .param .align 16 .b8 one_s[40])
{ ret; }
.entry none() { ret; }
.visible .entry bare { ret; }
)");
  REQUIRE(entries);
  REQUIRE(entries->size() == 3);
  CHECK((*entries)[0].name == "one");
  CHECK((*entries)[0].parameters == std::vector<std::size_t>{8, 4, 40});
  CHECK((*entries)[1].name == "none");
  CHECK((*entries)[1].parameters.empty());
  CHECK((*entries)[2].name == "bare");
  CHECK_FALSE(parse_ptx("ELF"));
  CHECK_FALSE(parse_ptx(""));
  CHECK_FALSE(parse_ptx(".version 7.0 .entry broken(.param .u64 x"));
}

TEST_CASE("Every test kernel is known with the parameters of its PTX") {
  auto entries = parse_ptx(programs::kKernelsPtx);
  REQUIRE(entries);
  CHECK(entries->size() >= 9);
  for (const PtxEntry& entry : *entries) {
    INFO(entry.name);
    const Kernel* kernel = find_kernel(entry.name);
    REQUIRE(kernel != nullptr);
    CHECK(kernel->parameters == entry.parameters);
  }
}

TEST_CASE("Parameters lie at their natural alignment") {
  std::vector<std::size_t> sizes{4, 8, 2, 4};
  CHECK(parameter_offset(sizes, 0) == 0);
  CHECK(parameter_offset(sizes, 1) == 8);
  CHECK(parameter_offset(sizes, 2) == 16);
  CHECK(parameter_offset(sizes, 3) == 20);
}

TEST_CASE("Sizes are read") {
  Bytes size;
  CHECK(parse_size("1GiB", size));
  CHECK(size == gibibytes(1));
  CHECK(parse_size("1.5MiB", size));
  CHECK(size == kibibytes(1536));
  CHECK(parse_size("4096", size));
  CHECK(size == Bytes{4096});
  CHECK_FALSE(parse_size("", size));
  CHECK_FALSE(parse_size("GiB", size));
  CHECK_FALSE(parse_size("12parsecs", size));
}

}  // namespace sharedgpu::simgpu
