// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/visible.h"

#include <catch2/catch.hpp>

namespace sharedgpu::session {
namespace {

constexpr char kTwo[] = "GPU-aaaa,GPU-bbbb";

TEST_CASE("Numbers in CUDA_VISIBLE_DEVICES count the job's GPUs") {
  CHECK(visible_devices(kTwo, "0") == "GPU-aaaa");
  CHECK(visible_devices(kTwo, "1") == "GPU-bbbb");
  CHECK(visible_devices(kTwo, "1,0") == "GPU-bbbb,GPU-aaaa");
  CHECK(visible_devices("GPU-aaaa", "0") == "GPU-aaaa");
}

TEST_CASE("A job that removes CUDA_VISIBLE_DEVICES sees all that it has, and no more") {
  CHECK(visible_devices(kTwo, nullptr) == kTwo);
}

TEST_CASE("An entry that is out of range ends the list of visible GPUs, as with the driver") {
  CHECK(visible_devices("GPU-aaaa", "1") == "");
  CHECK(visible_devices(kTwo, "1,2,0") == "GPU-bbbb");
  CHECK(visible_devices(kTwo, "0,-1,1") == "GPU-aaaa");
  CHECK(visible_devices(kTwo, "-1") == "");
  CHECK(visible_devices(kTwo, "") == "");
  CHECK(visible_devices(kTwo, "none") == "");
  CHECK(visible_devices(kTwo, "0,99999999999999999999999") == "GPU-aaaa");
}

TEST_CASE("Spaces and other text beside a number are ignored, as with the driver") {
  CHECK(visible_devices(kTwo, "0, 1") == kTwo);
  CHECK(visible_devices(kTwo, " 1 ,\t0 ") == "GPU-bbbb,GPU-aaaa");
  CHECK(visible_devices(kTwo, "+1,0x") == "GPU-bbbb,GPU-aaaa");
  CHECK(visible_devices(kTwo, "0, -1, 1") == "GPU-aaaa");
  CHECK(visible_devices(kTwo, "0, , 1") == "GPU-aaaa");
  CHECK(visible_devices(kTwo, " ") == "");
  CHECK_FALSE(visible_devices(kTwo, " GPU-cccc, GPU-dddd"));
}

TEST_CASE("Names other than numbers are the user's") {
  CHECK_FALSE(visible_devices(kTwo, "GPU-cccc"));
  CHECK_FALSE(visible_devices(kTwo, kTwo));
  CHECK_FALSE(visible_devices(kTwo, "MIG-dddd"));
}

}  // namespace
}  // namespace sharedgpu::session
