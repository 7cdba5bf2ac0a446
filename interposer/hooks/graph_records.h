// SPDX-License-Identifier: Apache-2.0
// The executable graphs that the program has made in sessions that may become oversized, with their nodes: as
// they were instantiated, with all updates since. The numbers of graphs and of nodes are bounded. Nothing is
// known about graphs beyond the first bound, or about the nodes of graphs beyond the second bound.
// Thread-safe.
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
#include "interposer/memory/stream_pool.h"

namespace sharedgpu::hooks {

// The nodes of an executable graph at one moment, in an order in which they can run.
struct GraphSnapshot {
  std::vector<std::shared_ptr<const Step>> steps;
  std::vector<session::KernelUse> uses;  // of the kernels
  bool single = true;                    // the steps can be launched one after the other
};

// CUDA promises that the launches of an executable graph run one after the other, whatever their streams. The
// driver cannot do this for launches node by node, so the interposer orders all launches. A thread holds the
// mutex while it launches the graph.
struct GraphLaunches {
  std::mutex mutex;
  bool known = false;        // all launches so far were submitted before the fence `last`, or there were none
  FencePtr last;             // null: no launch is known, or its fence could not be recorded
  bool last_single = false;  // the last launch was made node by node
};

// Graphs are named by their CUgraphExec, nodes by their CUgraphNode.
class GraphRecords {
 public:
  // Returns true once instantiated() has been called.
  bool in_use() const { return in_use_.load(std::memory_order_relaxed); }
  // The program has instantiated the graph.
  void instantiated(std::uintptr_t graph, GraphContents contents);
  // The program has updated the whole graph: its nodes are now those in `contents`. Does nothing if nothing
  // is known about the graph's nodes so far.
  void updated(std::uintptr_t graph, GraphContents contents);
  // The program has updated a node. `apply` does the same to the record, but does not touch child graphs. If
  // the record has no such node, nothing is known about the nodes from now on.
  void change(std::uintptr_t graph, std::uintptr_t node, const std::function<void(GraphNode&)>& apply);
  // The program has updated the child graph of a node. The driver's handles of the child's nodes differ from
  // those in `child`. So after a later update of one of these nodes, nothing is known about the graph's
  // nodes.
  void change_child(std::uintptr_t graph, std::uintptr_t node, GraphContents child);

  // The program has changed the graph in a way that the record cannot follow. Nothing is known about the
  // nodes from now on.
  void lost(std::uintptr_t graph);

  // The node's step; null if nothing is known about the node.
  std::shared_ptr<const Step> step(std::uintptr_t graph, std::uintptr_t node);
  // Null if nothing is known about the nodes.
  std::shared_ptr<const GraphSnapshot> snapshot(std::uintptr_t graph);
  // Null if nothing is known about the graph.
  std::shared_ptr<GraphLaunches> launches(std::uintptr_t graph);

  // Implements cuGraphExecDestroy. Waits for nodes that were launched singly, since they use objects that the
  // graph keeps alive. If the nodes do not end within five seconds, because they wait for the program, the
  // graph is not destroyed, but the result is CUDA_SUCCESS.
  CUresult destroy(CUgraphExec graph);

 private:
  struct Record {
    std::shared_ptr<GraphLaunches> launches;
    GraphContents contents;
    bool known = false;    // the contents are known
    std::size_t size = 0;  // nodes in `contents`
    // Each node of the contents, by its handle; empty until find_node() is called.
    std::map<std::uintptr_t, GraphNode*> nodes;
    std::shared_ptr<const GraphSnapshot> snapshot;  // null until snapshot() makes it, and after find_node()
  };

  Record* find_known(std::uintptr_t graph) REQUIRES(mutex_);
  // Finds a node that may be changed. If there is no such node, forgets the contents of the record, and
  // returns null.
  GraphNode* find_node(Record& record, std::uintptr_t node) REQUIRES(mutex_);
  void set(Record& record, GraphContents contents) REQUIRES(mutex_);
  void forget(Record& record) REQUIRES(mutex_);

  std::atomic<bool> in_use_{false};
  Mutex mutex_;
  std::map<std::uintptr_t, Record> records_ GUARDED_BY(mutex_);
  std::size_t size_ GUARDED_BY(mutex_) = 0;  // nodes of all records
};

GraphRecords& graph_records();

}  // namespace sharedgpu::hooks
