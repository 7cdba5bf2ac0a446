// SPDX-License-Identifier: Apache-2.0
// Messages with any contents, in any order: the arbiter continues, and serves other peers.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "host.h"

namespace sharedgpu::test {
namespace {

constexpr MessageType kTypes[] = {
    MessageType::hello,         MessageType::attach,         MessageType::usage,
    MessageType::want,          MessageType::idle,           MessageType::ready,
    MessageType::released,      MessageType::memory_query,   MessageType::borrow,
    MessageType::lend,          MessageType::deadlines,      MessageType::give_back,
    MessageType::status_query,  MessageType::run_request,    MessageType::register_job,
    MessageType::lease_query,   MessageType::gpu_query,      MessageType::suspend_job,
    MessageType::job_query,     MessageType::set_lines,      MessageType::end_job,
    MessageType::drain_gpus,    MessageType::gpu_loss_query, MessageType::register_gang,
    MessageType::refusal_query, MessageType::join_run,       MessageType::reload_settings,
    MessageType::exchange_query};

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  std::size_t below(std::size_t bound) { return random_() % bound; }

  // Returns a message of a random type. In three of four messages, at most seven bytes of the body are
  // random, and the other bytes are zero, so that numbers are often valid. A third of the messages names the
  // host's GPU.
  Message message() {
    Message message;
    message.type = kTypes[below(std::size(kTypes))];
    const std::size_t nonzero = below(4) == 0 ? sizeof message.body : below(8);
    for (std::size_t i = 0; i < nonzero; ++i)
      message.body[below(sizeof message.body)] = static_cast<unsigned char>(random_());
    if (below(3) == 0) std::memcpy(message.body, &kHostGpu, sizeof kHostGpu);  // a GPU that exists
    return message;
  }

 private:
  std::mt19937 random_;
};

TEST_CASE("The arbiter serves other peers, whatever a peer sends") {
  constexpr std::size_t kPeers = 8;
  constexpr int kMessages = 1000;
  for (unsigned seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    const GroupsSystem system;  // peers of root may request control groups
    Host host({}, system);
    host.start();
    Dice dice(seed);
    std::vector<std::unique_ptr<Guest>> peers(kPeers);
    for (int i = 0; i < kMessages; ++i) {
      std::unique_ptr<Guest>& peer = peers[dice.below(kPeers)];
      if (peer == nullptr) {
        peer = std::make_unique<Guest>(host, static_cast<uid_t>(dice.below(2) * kUser));
        if (dice.below(2) == 0) REQUIRE(peer->say(Hello{}).find<Welcome>());
      }
      if (peer->say(dice.message()).closed) peer.reset();
    }
    Guest good(host, kUser + 1);
    CHECK(good.say(Hello{}).find<Welcome>());
    CHECK(good.say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = {}}).find<Attached>());
    CHECK(good.say(MemoryQuery{.request = 7}).find<MemoryView>()->request == 7);
    CHECK(host.status()["gpus"].size() >= 1);
  }
}

}  // namespace
}  // namespace sharedgpu::test
