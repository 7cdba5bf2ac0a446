// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/requests.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;
using namespace sharedgpu::session;

TEST_CASE("each request is sent once on each connection, the oldest first, until it is answered") {
  Requests requests;
  Request first(MessageType::usage);
  Request second(MessageType::memory_query);
  requests.add(first);
  requests.add(second);
  CHECK(first.id != second.id);
  Requests::Unsent unsent{};
  REQUIRE(requests.next_unsent(unsent));
  CHECK(unsent.id == first.id);
  REQUIRE(requests.next_unsent(unsent));
  CHECK(unsent.question == MessageType::memory_query);
  CHECK(!requests.next_unsent(unsent));

  requests.answer(MessageType::usage, first.id,
                  Message::of(Verdict{.request = first.id, .granted = 1, .allowed = {}}));
  CHECK(requests.answered(first));
  CHECK(first.answer.as<Verdict>().granted == 1);
  CHECK(!requests.answered(second));

  requests.unsend();
  REQUIRE(requests.next_unsent(unsent));
  CHECK(unsent.id == second.id);
  CHECK(!requests.next_unsent(unsent));
  requests.remove(first);
  requests.remove(second);
  requests.unsend();
  CHECK(!requests.next_unsent(unsent));
}

TEST_CASE("an answer finds only its own request") {
  Requests requests;
  Request asked(MessageType::usage);
  requests.add(asked);
  requests.answer(MessageType::memory_query, asked.id, {});
  requests.answer(MessageType::usage, asked.id + 1, {});
  CHECK(!requests.answered(asked));
  requests.remove(asked);
  requests.answer(MessageType::usage, asked.id, {});
  CHECK(!requests.answered(asked));
}
