// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/node_order.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;

namespace {

using Order = std::vector<std::size_t>;

std::optional<Order> order_with(std::size_t count, const std::vector<NodeEdge>& edges) {
  return order_of_nodes(count, edges);
}

}  // namespace

TEST_CASE("nodes without dependencies keep their order", "[node_order]") {
  CHECK(order_with(0, {}) == Order{});
  CHECK(order_with(3, {}) == Order{0, 1, 2});
  CHECK(order_with(3, {{0, 1}, {1, 2}, {0, 2}}) == Order{0, 1, 2});
}

TEST_CASE("a node comes after the nodes on which it depends", "[node_order]") {
  CHECK(order_with(3, {{2, 0}}) == Order{1, 2, 0});
  CHECK(order_with(4, {{3, 2}, {2, 1}, {1, 0}}) == Order{3, 2, 1, 0});
  CHECK(order_with(4, {{3, 0}, {3, 0}, {1, 0}}) == Order{1, 2, 3, 0});  // the same edge twice
}

TEST_CASE("nodes that depend on each other, or on nodes that do not exist, have no order", "[node_order]") {
  CHECK_FALSE(order_with(2, {{0, 1}, {1, 0}}));
  CHECK_FALSE(order_with(2, {{1, 1}}));
  CHECK_FALSE(order_with(2, {{0, 2}}));
  CHECK_FALSE(order_with(2, {{2, 0}}));
  CHECK_FALSE(order_with(0, {{0, 0}}));
}

TEST_CASE("only nodes that a stream can run are launched singly", "[node_order]") {
  CHECK(single_type(0) == NodeType::kernel);
  CHECK(single_type(7) == NodeType::record_event);
  for (const unsigned number : {8u, 10u, 12u, 13u, 14u, ~0u}) CHECK_FALSE(single_type(number));
}

TEST_CASE("an order on one stream meets full and programmatic dependencies, and no others", "[node_order]") {
  CHECK(is_met_by_order({}));
  CHECK(is_met_by_order({.from_port = 1, .type = 1}));
  CHECK_FALSE(is_met_by_order({.from_port = 2, .type = 1}));
  CHECK_FALSE(is_met_by_order({.to_port = 1}));
  CHECK_FALSE(is_met_by_order({.type = 2}));
}
