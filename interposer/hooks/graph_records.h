// SPDX-License-Identifier: Apache-2.0
// The executable graphs of the program, with their nodes as of the instantiation and all updates since.
// Bounded: of graphs beyond the bound nothing is known. Thread-safe.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "interposer/hooks/graph_nodes.h"
#include "interposer/memory/mutex.h"

namespace sharedgpu::hooks {

// The enabled nodes of an executable graph at one moment, in an order in which they can run.
struct GraphSnapshot {
  std::vector<std::shared_ptr<const Step>> steps;
  std::vector<session::KernelUse> uses;  // of the kernels
  bool single = true;                    // the steps can be launched one after the other
};

// The launches of an executable graph run one after the other, whatever their streams. The driver knows only
// of launches of the whole graph. A thread holds the mutex while it launches the graph.
struct GraphLaunches {
  std::mutex mutex;
  bool known = false;      // `last` comes after all launches so far, or there were none
  CUevent last = nullptr;  // null: no launch is known
};

// Graphs are named by their CUgraphExec, nodes by their CUgraphNode.
class GraphRecords {
 public:
  // Returns false as long as nothing is known about any graph.
  bool in_use() const { return in_use_.load(std::memory_order_relaxed); }
  // The program has instantiated the graph.
  void instantiated(std::uintptr_t graph, GraphContents contents);
  // The program has updated the whole graph, whose nodes are these from now on. Does nothing if nothing is
  // known about the nodes so far.
  void updated(std::uintptr_t graph, GraphContents contents);
  // The program has updated a node. `apply` does the same to the record, but does not touch child graphs. If
  // the record has no such node, nothing is known about the nodes from now on.
  void change(std::uintptr_t graph, std::uintptr_t node, const std::function<void(GraphNode&)>& apply);
  // The program has updated the child graph of a node. The driver knows the nodes of the child by handles
  // that are not those of `child`, so an update of one of them makes the record unknown.
  void change_child(std::uintptr_t graph, std::uintptr_t node, GraphContents child);

  // The node's step; null if nothing is known about the node.
  std::shared_ptr<const Step> step(std::uintptr_t graph, std::uintptr_t node);
  // Null if nothing is known about the nodes.
  std::shared_ptr<const GraphSnapshot> snapshot(std::uintptr_t graph);
  // Null if nothing is known about the graph.
  std::shared_ptr<GraphLaunches> launches(std::uintptr_t graph);

  // Implements cuGraphExecDestroy. If nodes that were launched singly may still run, the graph is destroyed
  // when they have ended, since it keeps objects alive that they use.
  CUresult destroy(CUgraphExec graph);
  // Destroys the graphs whose nodes have ended meanwhile.
  void destroy_ended();

 private:
  struct Record {
    std::shared_ptr<GraphLaunches> launches;
    GraphContents contents;
    bool known = false;    // the contents are known
    std::size_t size = 0;  // nodes in `contents`
    // Each node of the contents, by its handle; empty until the first change.
    std::map<std::uintptr_t, GraphNode*> nodes;
    std::shared_ptr<const GraphSnapshot> snapshot;  // null after a change
  };
  struct Ending {
    CUgraphExec graph;
    std::shared_ptr<GraphLaunches> launches;
  };

  Record* find_known(std::uintptr_t graph) REQUIRES(mutex_);
  // The node, which is about to change; null if the record is unknown, maybe from now on.
  GraphNode* find_node(Record& record, std::uintptr_t node) REQUIRES(mutex_);
  void set(Record& record, GraphContents contents) REQUIRES(mutex_);
  void forget(Record& record) REQUIRES(mutex_);

  std::atomic<bool> in_use_{false};
  Mutex mutex_;
  std::map<std::uintptr_t, Record> records_ GUARDED_BY(mutex_);
  std::size_t size_ GUARDED_BY(mutex_) = 0;  // nodes of all records
  std::vector<Ending> ending_ GUARDED_BY(mutex_);
};

GraphRecords& graph_records();

}  // namespace sharedgpu::hooks
