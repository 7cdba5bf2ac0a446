// SPDX-License-Identifier: GPL-2.0-or-later
#include "gres/shares.h"

#include <catch2/catch.hpp>

using namespace sharedgpu::gres;

namespace {

using Files = std::vector<std::string>;

const std::vector<Gpu> kTwoTypes = {{"/dev/nvidia0", "nvidia_h200"},
                                    {"/dev/nvidia1", "nvidia_a100-sxm4-80gb"}};
const std::vector<Gpu> kUnknown = {{"/dev/nvidia0", ""}, {"/dev/nvidia1", ""}};

Record untyped(std::uint64_t units, Files files = {}) { return {"", units, std::move(files)}; }
Record typed(const char* type, std::uint64_t units, Files files = {}) {
  return {type, units, std::move(files)};
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("untyped units are for all GPUs found") {
  Shares shares = share_gpus({untyped(16)}, kTwoTypes, {});
  CHECK(shares.refusal.empty());
  CHECK(shares.warnings.empty());
  REQUIRE(shares.list.size() == 1);
  CHECK(shares.list[0].files == Files{"/dev/nvidia0", "/dev/nvidia1"});
}

TEST_CASE("units of a type are for the GPUs with the type in their model's name, and are numbered in order") {
  Shares shares = share_gpus({typed("a100", 8), typed("H200", 4)}, kTwoTypes, {});
  CHECK(shares.refusal.empty());
  REQUIRE(shares.list.size() == 2);
  CHECK(shares.list[0].files == Files{"/dev/nvidia1"});
  CHECK(shares.list[0].first_unit == 0);
  CHECK(shares.list[1].files == Files{"/dev/nvidia0"});
  CHECK(shares.list[1].first_unit == 8);
  CHECK(shares.list[1].units == 4);
}

TEST_CASE("a GPU counts for the longest type in its name") {
  const std::vector<Gpu> gpus = {{"/dev/nvidia0", "nvidia_a100-sxm4-40gb"},
                                 {"/dev/nvidia1", "nvidia_a100-sxm4-80gb"}};
  Shares shares = share_gpus({typed("a100", 8), typed("a100-sxm4-80gb", 8)}, gpus, {});
  CHECK(shares.refusal.empty());
  CHECK(shares.list[0].files == Files{"/dev/nvidia0"});
  CHECK(shares.list[1].files == Files{"/dev/nvidia1"});
}

TEST_CASE("File= states a type's GPUs, also for units that only slurm.conf has") {
  Shares shares = share_gpus({typed("big", 1, {"/dev/nvidia1"}), typed("big", 7)}, kTwoTypes, {});
  CHECK(shares.refusal.empty());
  CHECK(shares.warnings.empty());
  REQUIRE(shares.list.size() == 2);
  CHECK(shares.list[0].files == Files{"/dev/nvidia1"});
  CHECK(shares.list[1].files == Files{"/dev/nvidia1"});
  CHECK(shares.list[1].first_unit == 1);
  std::vector<Share> sums = sum_by_type(shares.list);
  REQUIRE(sums.size() == 1);
  CHECK(sums[0].units == 8);
  CHECK(sums[0].files == Files{"/dev/nvidia1"});
}

TEST_CASE("GPUs of another GRES are not shared") {
  Shares shares = share_gpus({untyped(8)}, kTwoTypes, {"/dev/nvidia0"});
  CHECK(shares.refusal.empty());
  CHECK(shares.list[0].files == Files{"/dev/nvidia1"});
}

TEST_CASE("a GPU offered as gpu and sharedgpu, or twice, is refused") {
  CHECK(says(share_gpus({untyped(8, {"/dev/nvidia0"})}, kTwoTypes, {"/dev/nvidia0"}).refusal,
             "/dev/nvidia0 both as sharedgpu and as another GRES"));
  CHECK(says(share_gpus({untyped(8)}, kTwoTypes, {"/dev/nvidia0", "/dev/nvidia1"}).refusal,
             "8 units sharedgpu, but other entries already offer all GPUs of this node"));
  CHECK(says(
      share_gpus({typed("a", 1, {"/dev/nvidia0"}), typed("b", 1, {"/dev/nvidia0"})}, kTwoTypes, {}).refusal,
      "/dev/nvidia0 twice"));
}

TEST_CASE("a type without a GPU is refused") {
  std::string refusal = share_gpus({typed("b200", 8)}, kTwoTypes, {}).refusal;
  CHECK(says(refusal, "units sharedgpu:b200"));
  CHECK(says(refusal, "/dev/nvidia0 (nvidia_h200)"));
  CHECK(says(refusal, "gres.conf"));
}

TEST_CASE("if models are unknown, a single type has all GPUs, and two types are refused") {
  CHECK(share_gpus({typed("h200", 16)}, kUnknown, {}).list[0].files == Files{"/dev/nvidia0", "/dev/nvidia1"});
  CHECK(says(share_gpus({typed("h200", 8), typed("a100", 8)}, kUnknown, {}).refusal,
             "the models are not known"));
}

TEST_CASE("if no GPU is found, units are offered as configured") {
  Shares shares = share_gpus({typed("h200", 8), typed("a100", 8)}, {}, {});
  CHECK(shares.refusal.empty());
  CHECK(shares.list[1].units == 8);
  CHECK(shares.list[1].files.empty());
}

TEST_CASE("fewer units in gres.conf than in slurm.conf are logged, unless gres.conf states none") {
  Shares shares = share_gpus({untyped(8), untyped(24)}, {}, {});
  REQUIRE(shares.warnings.size() == 1);
  CHECK(says(shares.warnings[0], "gres.conf has 8 units"));
  CHECK(says(shares.warnings[0], "slurm.conf 32"));
  CHECK(share_gpus({untyped(1), untyped(31)}, {}, {}).warnings.empty());
}

TEST_CASE("a node without units offers none") {
  Shares shares = share_gpus({untyped(0)}, kTwoTypes, {"/dev/nvidia0", "/dev/nvidia1"});
  CHECK(shares.refusal.empty());
  CHECK(shares.list[0].files.empty());
}

TEST_CASE("slurmstepd reads what slurmd writes") {
  NodeUnits read;
  REQUIRE(read_units(write_units({.devices = {{0, 8, 195, 0, "/dev/nvidia0"}, {8, 16, 195, 11, "/dev/a b"}},
                                  .typed = {{0, 8, "a100"}, {8, 16, "h100"}}}),
                     read));
  REQUIRE(read.devices.size() == 2);
  CHECK(read.devices[1].first_unit == 8);
  CHECK(read.devices[1].units == 16);
  CHECK(read.devices[1].major == 195);
  CHECK(read.devices[1].minor == 11);
  CHECK(read.devices[1].file == "/dev/a b");
  REQUIRE(read.typed.size() == 2);
  CHECK(read.typed[1].first_unit == 8);
  CHECK(read.typed[1].units == 16);
  CHECK(read.typed[1].type == "h100");
  REQUIRE(read_units(write_units({}), read));
  CHECK(read.devices.empty());
  CHECK(read.typed.empty());
}

TEST_CASE("a buffer that slurmd did not write is not read") {
  NodeUnits read = {.devices = {{1, 2, 3, 4, "x"}}, .typed = {}};
  for (const char* text : {"", "gpu\n", "sharedgpu\n0 8 195 0 /dev/nvidia0", "sharedgpu\n0 8 195\n",
                           "sharedgpu\ntype 0 8\n", "sharedgpu\ntype 0 8 \n", "sharedgpu\ntype x 8 a\n"})
    CHECK_FALSE(read_units(text, read));
  CHECK(read.devices.size() == 1);
}

TEST_CASE("more units than Slurm can number are refused with the largest possible number") {
  CHECK(share_gpus({untyped(1024)}, kTwoTypes, {}).refusal.empty());
  const std::string refusal = share_gpus({typed("h200", 1024), typed("a100", 8)}, kTwoTypes, {}).refusal;
  CHECK(says(refusal, "1032 units"));
  CHECK(says(refusal, "UnitsPerGpu in sharedgpu.conf to 512 or less"));
}

TEST_CASE("the data of slurmd's plugin is distinguished from another plugin's data") {
  CHECK(begins_with_units(std::string(4, '\0') + write_units({})));
  CHECK_FALSE(begins_with_units(std::string(4, '\0') + "gpu"));
  CHECK_FALSE(begins_with_units("abc"));
  CHECK_FALSE(begins_with_units(""));
}
