// SPDX-License-Identifier: Apache-2.0
// The turn thread after an exchange or a merge that has failed for some handles: no work begins until these
// handles are restored.
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "interposer/gate/closing.h"
#include "interposer/gate/gate.h"
#include "interposer/session/turn_worker.h"

using namespace sharedgpu;
using namespace std::chrono_literals;
using session::Exchanged;
using session::TurnOrder;
using session::TurnWorker;

namespace {

// Memory whose exchanges, merges and restores have the results that the test chooses.
class ChosenMemory final : public Memory, public AwayMemory {
 public:
  CUresult allocate(CUdeviceptr*, Bytes) override { return CUDA_ERROR_OUT_OF_MEMORY; }
  std::optional<CUresult> free(CUdeviceptr) override { return std::nullopt; }
  std::optional<CUresult> free_unused(CUdeviceptr) override { return std::nullopt; }
  CUresult free_with(Destruction& destruction, const std::vector<CUdeviceptr>&) override {
    return destruction.carry_out();
  }
  std::optional<AddressRange> find(CUdeviceptr) const override { return std::nullopt; }
  CUresult pin(Bytes) override { return CUDA_SUCCESS; }
  void unpin(Bytes) override {}
  MemoryUse use() const override { return {}; }
  void set_allowed(Bytes) override {}
  Bytes allowed() const override { return {}; }
  bool evict() override {
    ++evictions;
    return true;
  }
  bool restore() override {
    if (gate::is_open()) ++open_restores;
    ++restores;
    return restorable;
  }
  CUresult merge(CUdeviceptr) override { return merged; }
  void tend() override {}
  void set_context_size(Bytes) override {}
  AwayMemory* away_memory() override { return this; }
  std::vector<AwayHandle> operands(CUdeviceptr) override { return {}; }
  std::vector<AwayHandle> within(CUdeviceptr, Bytes) const override { return {}; }
  std::vector<AwayHandle> handles() const override { return {}; }
  Bytes window() const override { return {}; }
  Bytes room() const override { return {}; }
  Bytes excess() const override { return {}; }
  Bytes growth(Bytes, Nanoseconds) const override { return {}; }
  bool exchange(const std::vector<CUdeviceptr>&, const std::vector<CUdeviceptr>&) override {
    return exchanged;
  }

  std::atomic<bool> exchanged{true};
  std::atomic<CUresult> merged{CUDA_SUCCESS};
  std::atomic<bool> restorable{true};
  std::atomic<unsigned> restores{0};
  std::atomic<unsigned> open_restores{0};  // number of restores while the gate was open
  std::atomic<unsigned> evictions{0};
};

void wait_until(const std::function<bool()>& done) {
  while (!done()) std::this_thread::sleep_for(1ms);
}

}  // namespace

TEST_CASE("no work begins while a handle is without memory") {
  // The turn thread never ends, so the objects are never destroyed.
  auto* contexts = new tracking::Contexts;
  auto* drain = new tracking::ContextDrain(*contexts);
  auto* outbox = new session::Outbox;
  auto* totals = new session::ExchangeTotals;
  auto* memory = new ChosenMemory;
  auto* worker = new TurnWorker({*drain, *contexts, {}}, *outbox, *totals, {});
  worker->set_memory(memory);
  std::thread([worker] { worker->run(); }).detach();
  REQUIRE(gate::is_open());

  // An exchange may succeed for all entering handles and fail for a leaving handle.
  CHECK(worker->exchange({1}, {2}).outcome == Exchanged::complete);
  CHECK(memory->restores == 1);
  CHECK(gate::is_open());
  CHECK(gate::held());
  memory->exchanged = false;
  CHECK(worker->exchange({1}, {2}).outcome == Exchanged::partial);
  CHECK(memory->restores == 2);
  CHECK(gate::is_open());

  // The results of merges.
  CHECK(worker->merge(1).outcome == Exchanged::complete);
  memory->merged = CUDA_ERROR_NOT_READY;
  CHECK(worker->merge(1).outcome == Exchanged::closed);
  memory->merged = CUDA_ERROR_OUT_OF_MEMORY;
  CHECK(worker->merge(1).outcome == Exchanged::partial);
  CHECK(gate::is_open());

  // The gate stays closed until a restore succeeds, and no other exchange begins.
  for (const bool merges : {false, true}) {
    memory->restorable = false;
    CHECK((merges ? worker->merge(1) : worker->exchange({1}, {2})).outcome == Exchanged::partial);
    CHECK_FALSE(gate::is_open());
    const unsigned before = memory->restores;
    wait_until([&] { return memory->restores > before + 3; });
    CHECK_FALSE(gate::is_open());
    CHECK(worker->exchange({1}, {2}).outcome == Exchanged::closed);
    CHECK_FALSE(gate::is_open());
    std::atomic<bool> passed{false};
    std::thread submits([&] {
      const gate::Pass pass;
      passed = true;
    });
    CHECK_FALSE(passed);
    memory->restorable = true;
    submits.join();
    CHECK(passed);
    CHECK(gate::is_open());
    CHECK(gate::held());
    CHECK(worker->exchange({1}, {2}).outcome == Exchanged::partial);  // `exchanged` is false
  }

  // If the turn ends before a restore succeeds, the restore of the next turn opens the gate.
  memory->restorable = false;
  CHECK(worker->exchange({1}, {2}).outcome == Exchanged::partial);
  const unsigned evictions = memory->evictions;
  worker->push({.kind = TurnOrder::Kind::revoke, .epoch = {2}, .number = 1, .since = gate::now()});
  worker->push({.kind = TurnOrder::Kind::evict, .epoch = {2}});
  wait_until([&] { return memory->evictions > evictions; });
  CHECK_FALSE(gate::is_open());
  memory->restorable = true;
  worker->push({.kind = TurnOrder::Kind::restore, .epoch = {3}});
  wait_until([] { return gate::is_open(); });
  CHECK(gate::held());
  CHECK(memory->open_restores == 0);
}
