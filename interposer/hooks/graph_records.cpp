// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/graph_records.h"

#include <algorithm>
#include <utility>

#include "interposer/driver/beside_captures.h"
#include "interposer/driver/call.h"
#include "interposer/oversize/active.h"

namespace sharedgpu::hooks {
namespace {

constexpr std::size_t kMostRecords = 4096;
constexpr std::size_t kMostRecorded = 262144;  // nodes of all graphs

std::size_t count_nodes(const std::vector<GraphNode>& nodes) {
  std::size_t count = nodes.size();
  for (const GraphNode& node : nodes) count += count_nodes(node.children);
  return count;
}

bool all_enabled(const std::vector<GraphNode>& nodes) {
  return std::ranges::all_of(
      nodes, [](const GraphNode& node) { return node.enabled && all_enabled(node.children); });
}

void index_nodes(std::vector<GraphNode>& nodes, std::map<std::uintptr_t, GraphNode*>& index) {
  for (GraphNode& node : nodes) {
    index[node.handle] = &node;
    index_nodes(node.children, index);
  }
}

void add_to(GraphSnapshot& snapshot, const std::vector<GraphNode>& nodes) {
  for (const GraphNode& node : nodes) {
    if (!node.enabled) continue;
    snapshot.single &= is_single(*node.step);
    snapshot.steps.push_back(node.step);
    if (const auto* kernel = std::get_if<KernelStep>(node.step.get())) snapshot.uses.push_back(kernel->use);
    add_to(snapshot, node.children);
  }
}

// Called when no thread launches the graph.
bool may_run(const GraphLaunches& launches) {
  const driver::BesideCaptures beside;
  return launches.last != nullptr && SHAREDGPU_REAL(cuEventQuery, launches.last) == CUDA_ERROR_NOT_READY;
}

CUresult destroy_now(CUgraphExec graph, const GraphLaunches* launches) {
  if (launches != nullptr && launches->last != nullptr) SHAREDGPU_REAL(cuEventDestroy_v2, launches->last);
  return SHAREDGPU_REAL(cuGraphExecDestroy, graph);
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
  // Launches are followed only while the process is oversized. The driver has run the launches before.
  record.launches->known = oversize::is_active();
  set(record, std::move(contents));
}

// It is not known which node of the new graph takes the place of a disabled node.
void GraphRecords::updated(std::uintptr_t graph, GraphContents contents) {
  const MutexLock lock(mutex_);
  Record* const record = find_known(graph);
  if (record == nullptr) return;
  if (all_enabled(record->contents.nodes))
    set(*record, std::move(contents));
  else
    forget(*record);
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
  if (!in_use()) return destroy_now(graph, nullptr);
  destroy_ended();
  std::shared_ptr<GraphLaunches> launches;
  {
    const MutexLock lock(mutex_);
    if (std::ranges::find(ending_, graph, &Ending::graph) != ending_.end()) return CUDA_ERROR_INVALID_VALUE;
    if (const auto found = records_.find(reinterpret_cast<std::uintptr_t>(graph)); found != records_.end()) {
      launches = std::move(found->second.launches);
      forget(found->second);
      records_.erase(found);
    }
  }
  if (launches == nullptr || !may_run(*launches)) return destroy_now(graph, launches.get());
  const MutexLock lock(mutex_);
  ending_.push_back({graph, std::move(launches)});
  return CUDA_SUCCESS;
}

void GraphRecords::destroy_ended() {
  std::vector<Ending> ending;
  {
    const MutexLock lock(mutex_);
    ending.swap(ending_);
  }
  std::erase_if(ending, [](const Ending& each) {
    if (may_run(*each.launches)) return false;
    destroy_now(each.graph, each.launches.get());
    return true;
  });
  const MutexLock lock(mutex_);
  ending_.insert(ending_.end(), ending.begin(), ending.end());
}

GraphRecords& graph_records() {
  static auto* made = new GraphRecords;
  return *made;
}

}  // namespace sharedgpu::hooks
