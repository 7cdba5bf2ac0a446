// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/graph_records.h"

#include <algorithm>
#include <utility>

#include "interposer/driver/call.h"
#include "interposer/gate/clock.h"
#include "interposer/oversize/active.h"
#include "interposer/process/process.h"

namespace sharedgpu::hooks {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kMostPatience = 5s;
constexpr Nanoseconds kLook = 100us;
constexpr std::size_t kMostRecords = 4096;
constexpr std::size_t kMostRecorded = 262144;  // nodes of all graphs

std::size_t count_nodes(const std::vector<GraphNode>& nodes) {
  std::size_t count = nodes.size();
  for (const GraphNode& node : nodes) count += count_nodes(node.children);
  return count;
}

void index_nodes(std::vector<GraphNode>& nodes, std::map<std::uintptr_t, GraphNode*>& index) {
  for (GraphNode& node : nodes) {
    index[node.handle] = &node;
    index_nodes(node.children, index);
  }
}

void add_to(GraphSnapshot& snapshot, const std::vector<GraphNode>& nodes) {
  for (const GraphNode& node : nodes) {
    snapshot.single &= is_single(*node.step);
    snapshot.steps.push_back(node.step);
    if (const auto* kernel = std::get_if<KernelStep>(node.step.get())) snapshot.uses.push_back(kernel->use);
    add_to(snapshot, node.children);
  }
}

// Waits until the nodes of the last launch have ended, if they were launched singly. Returns false if they do
// not end within kMostPatience. Call only while no thread launches the graph.
bool have_ended(const GraphLaunches& launches) {
  if (!launches.last_single || launches.last == nullptr) return true;
  const Nanoseconds end = gate::now() + kMostPatience;
  while (!launches.last->passed()) {
    if (gate::now() >= end) return false;
    gate::nap(kLook);
  }
  return true;
}

}  // namespace

void GraphRecords::forget(Record& record) {
  size_ -= std::exchange(record.size, 0);
  record.contents = {};
  record.known = false;
  record.nodes.clear();
  record.snapshot.reset();
}

void GraphRecords::set(Record& record, GraphContents contents) {
  forget(record);
  const std::size_t size = count_nodes(contents.nodes);
  if (size_ + size > kMostRecorded) return;
  size_ += size;
  record.size = size;
  record.contents = std::move(contents);
  record.known = true;
}

void GraphRecords::instantiated(std::uintptr_t graph, GraphContents contents) {
  in_use_ = true;
  const MutexLock lock(mutex_);
  if (records_.size() >= kMostRecords && !records_.contains(graph)) return;
  Record& record = records_[graph];
  record.launches = std::make_shared<GraphLaunches>();
  // Launches are recorded only while the process is oversized. If it is not oversized yet, launches of this
  // graph may follow that are not recorded.
  record.launches->known = oversize::is_active();
  set(record, std::move(contents));
}

void GraphRecords::updated(std::uintptr_t graph, GraphContents contents) {
  const MutexLock lock(mutex_);
  if (Record* const record = find_known(graph)) set(*record, std::move(contents));
}

void GraphRecords::lost(std::uintptr_t graph) {
  const MutexLock lock(mutex_);
  if (Record* const record = find_known(graph)) forget(*record);
}

GraphRecords::Record* GraphRecords::find_known(std::uintptr_t graph) {
  const auto found = records_.find(graph);
  return found == records_.end() || !found->second.known ? nullptr : &found->second;
}

GraphNode* GraphRecords::find_node(Record& record, std::uintptr_t node) {
  record.snapshot.reset();
  if (record.nodes.empty()) index_nodes(record.contents.nodes, record.nodes);
  const auto found = record.nodes.find(node);
  if (found != record.nodes.end()) return found->second;
  forget(record);
  return nullptr;
}

void GraphRecords::change(std::uintptr_t graph, std::uintptr_t node,
                          const std::function<void(GraphNode&)>& apply) {
  const MutexLock lock(mutex_);
  Record* const record = find_known(graph);
  if (record == nullptr) return;
  if (GraphNode* const changed = find_node(*record, node)) apply(*changed);
}

void GraphRecords::change_child(std::uintptr_t graph, std::uintptr_t node, GraphContents child) {
  const MutexLock lock(mutex_);
  Record* const record = find_known(graph);
  if (record == nullptr) return;
  GraphNode* const changed = find_node(*record, node);
  if (changed == nullptr) return;
  std::map<std::uintptr_t, GraphNode*> replaced;
  index_nodes(changed->children, replaced);
  for (const auto& [handle, gone] : replaced) record->nodes.erase(handle);
  const std::size_t less = count_nodes(changed->children);
  const std::size_t more = count_nodes(child.nodes);
  record->size += more - less;
  size_ += more - less;
  record->contents.ordered &= child.ordered;
  changed->children = std::move(child.nodes);
  if (size_ > kMostRecorded) forget(*record);
}

std::shared_ptr<const Step> GraphRecords::step(std::uintptr_t graph, std::uintptr_t node) {
  const MutexLock lock(mutex_);
  Record* const record = find_known(graph);
  GraphNode* const its = record != nullptr ? find_node(*record, node) : nullptr;
  return its != nullptr ? its->step : nullptr;
}

std::shared_ptr<const GraphSnapshot> GraphRecords::snapshot(std::uintptr_t graph) {
  const MutexLock lock(mutex_);
  Record* const record = find_known(graph);
  if (record == nullptr) return nullptr;
  if (record->snapshot == nullptr) {
    auto taken = std::make_shared<GraphSnapshot>();
    add_to(*taken, record->contents.nodes);
    taken->single &= record->contents.ordered;
    record->snapshot = std::move(taken);
  }
  return record->snapshot;
}

std::shared_ptr<GraphLaunches> GraphRecords::launches(std::uintptr_t graph) {
  const MutexLock lock(mutex_);
  const auto found = records_.find(graph);
  return found == records_.end() ? nullptr : found->second.launches;
}

CUresult GraphRecords::destroy(CUgraphExec graph) {
  std::shared_ptr<GraphLaunches> launches;
  // In the child of a fork there is no `Process`, and the mutex may be held for ever.
  if (in_use() && Process::get() != nullptr) {
    const MutexLock lock(mutex_);
    if (const auto found = records_.find(reinterpret_cast<std::uintptr_t>(graph)); found != records_.end()) {
      launches = std::move(found->second.launches);
      forget(found->second);
      records_.erase(found);
    }
  }
  if (launches != nullptr && !have_ended(*launches)) return CUDA_SUCCESS;
  return SHAREDGPU_REAL(cuGraphExecDestroy, graph);
}

GraphRecords& graph_records() {
  static auto* made = new GraphRecords;
  return *made;
}

}  // namespace sharedgpu::hooks
