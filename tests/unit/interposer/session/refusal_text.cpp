// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/refusal_text.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

using namespace sharedgpu;
using namespace sharedgpu::session;

namespace {

std::string text(const RefusalReply& why, Bytes host_used = {}, BatchSystem batch = BatchSystem::slurm) {
  return describe(why, host_used, batch).text;
}

RefusalReply job_needs(Bytes needed) {
  return {.bound = Bound::job, .most = mebibytes(224), .needed = needed};
}

constexpr BatchSystem kAll[] = {BatchSystem::none, BatchSystem::slurm, BatchSystem::torque,
                                BatchSystem::openpbs, BatchSystem::run};

}  // namespace

TEST_CASE("a refusal for want of the job's host memory names the size that suffices") {
  const std::string begin =
      "device memory refused: this job's host memory could never hold more than 224 MiB of it while other "
      "jobs "
      "have the GPU; request ";
  CHECK(text(job_needs(mebibytes(232))) == begin + "--mem=264M");
  CHECK(text(job_needs(mebibytes(232) + Bytes{1})) == begin + "--mem=265M");
  CHECK(text(job_needs(gibibytes(25))) == begin + "--mem=26G");
  SECTION("with room for what the program uses itself, but not twice for what is evicted already") {
    RefusalReply why = job_needs(mebibytes(232));
    why.host = mebibytes(100);
    CHECK(text(why, mebibytes(150)) == begin + "--mem=314M");
    CHECK(text(why, mebibytes(50)) == begin + "--mem=264M");
  }
  SECTION("beside the memory that units bring, if the limit contains it") {
    RefusalReply why = job_needs(gibibytes(80));
    why.brought = gibibytes(80);
    CHECK(text(why) == begin + "--mem=81G");
    why.most = gibibytes(79) + mebibytes(500);
    const std::string said = text(why);
    CHECK(said.substr(said.rfind("; ")) == "; request --mem=1024M beside the 81920 MiB of its units");
  }
  SECTION("in the words of each batch system") {
    const RefusalReply why = job_needs(gibibytes(25));
    CHECK(text(why, {}, BatchSystem::torque) == begin + "-l mem=26gb");
    CHECK(text(why, {}, BatchSystem::openpbs) == begin + "-l mem=26gb");
    CHECK(text(why, {}, BatchSystem::none) == begin + "a limit of 26G for its cgroup's memory");
    CHECK(text(why, {}, BatchSystem::run) == begin + "sharedgpu run --host-memory=26G");
  }
  SECTION("unless the arbiter does not say") {
    CHECK(text({.bound = Bound::job, .most = mebibytes(224)}) ==
          begin.substr(0, begin.rfind("request")) + "request more host memory");
  }
}

TEST_CASE("a refusal for want of the units' host memory names the units that suffice") {
  const std::string begin =
      "device memory refused: the host memory of this job's units could never hold more than 20480 MiB of it "
      "while other jobs have the GPU; ";
  RefusalReply why{.bound = Bound::units, .units = 3, .most = gibibytes(20), .needed = gibibytes(21)};
  CHECK(text(why) == begin + "request --gres=sharedgpu:3");
  CHECK(text(why, {}, BatchSystem::torque) == begin + "request -l gres=sharedgpu:3");
  CHECK(text(why, {}, BatchSystem::openpbs) == begin + "request -l sharedgpu=3");
  CHECK(text(why, {}, BatchSystem::none) == begin + "request sharedgpu run --units=3");
  why.units = 0;
  CHECK(text(why) ==
        begin + "no option helps, since it needs 21504 MiB, and all units of this node bring less");
}

TEST_CASE("a refusal by the job's own limit names the limit that suffices") {
  const RefusalReply why{.bound = Bound::own, .most = gibibytes(4), .needed = mebibytes(5000)};
  CHECK(text(why) ==
        "device memory refused: this job limits itself to 4096 MiB; request --sharedgpu-memory=5000M");
  CHECK(text(why, {}, BatchSystem::none) ==
        "device memory refused: this job limits itself to 4096 MiB; request sharedgpu run --memory=5000M");
}

TEST_CASE("a refusal of more than the GPU says that nothing helps") {
  CHECK(text({.bound = Bound::gpu, .most = gibibytes(1), .needed = gibibytes(2)}) ==
        "device memory refused: no option helps, since the program needs 2048 MiB on a GPU of 1024 MiB");
}

TEST_CASE("any numbers fit the line") {
  const Bytes most{~0ull >> 1};
  for (const Bound bound : {Bound::job, Bound::units, Bound::own, Bound::gpu})
    for (const BatchSystem batch : kAll) {
      const RefusalReply why{
          .bound = bound, .units = ~0u, .most = most, .needed = most, .brought = {most.count / 2}};
      CHECK(text(why, most, batch).size() < sizeof RefusalText{}.text - 1);
    }
}
