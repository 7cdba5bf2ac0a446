// SPDX-License-Identifier: Apache-2.0
// Streams, events, captures and graphs, and the order of their work.
//
// One lock, order_lock(), guards all of these objects. A task is ordered after the task before it in its
// stream, and after the tasks for which it must wait. A task waits only for older tasks, so tasks never wait
// for each other in a circle. Each stream has one worker thread, which starts at the stream's first task.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/simgpu/shared_device.h"

namespace sharedgpu::simgpu {

class Context;
struct Range;
struct Stream;
struct Use;

struct NodeParameters;

// The work of one task of a stream, or of one node of a graph.
struct Work {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::function<CUresult(Context&)> run;  // called without any lock
  std::uint64_t memory = 0;               // the memory's address if this is an allocation node, else 0
  std::function<std::vector<Range>()> ranges =
      {};  // the ranges that are known before the work runs; may be null
  std::shared_ptr<const NodeParameters> parameters = {};  // null if this kind of work has no parameters
};

struct Task {
  Work work;
  std::shared_ptr<Use> queued;  // may be null
  std::vector<std::shared_ptr<Task>> after;
  bool done = false;
  TimePoint finished{};
  std::vector<Stream*> waiting;  // streams whose worker waits for this task
};
using TaskPtr = std::shared_ptr<Task>;

struct Graph;

struct Node {
  Work work;
  std::vector<Node*> after;
  std::shared_ptr<Graph> child = {};  // the child graph if this is a child graph node, else null
};

struct Graph {
  std::vector<std::shared_ptr<Node>> nodes;
};

// A node of an executable graph. The program identifies the node by the handle of `original`, the node of the
// graph from which the executable graph was made.
struct ExecNode {
  const Node* original = nullptr;
  Work work;
  bool enabled = true;
  std::vector<ExecNode> children = {};  // the nodes of the child graph if this is a child graph node
};

struct GraphExec {
  std::vector<ExecNode> nodes;  // in an order in which they can run
  cuuint64_t flags = 0;
  TaskPtr last = {};  // the newest launch
};

struct Capture {
  std::uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  Stream* origin = nullptr;
  std::set<Stream*> streams;
  bool ended = false;
  bool invalidated = false;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
};
using CapturePtr = std::shared_ptr<Capture>;

struct Stream {
  enum class Kind { legacy, blocking, non_blocking };

  std::shared_ptr<Context> context;
  Kind kind = Kind::blocking;
  unsigned flags = 0;
  int priority = 0;
  std::uint64_t id = 0;

  std::deque<TaskPtr> queue;
  TaskPtr last;
  std::vector<TaskPtr> pending_waits;  // tasks for which the next task must wait
  bool running = false;                // the stream has a worker
  bool closed = false;                 // the worker ends when the queue is empty
  std::condition_variable wake;

  CapturePtr capture;
  std::vector<Node*> frontier;  // predecessors of the next captured node
};
using StreamPtr = std::shared_ptr<Stream>;

struct Event {
  std::shared_ptr<Context> context;
  unsigned flags = 0;
  TaskPtr recorded;
  CapturePtr capture;  // the capture in which the event was recorded; null if none
  std::vector<Node*> nodes;
};

std::mutex& order_lock();

// The first error of work on the device. As on a real GPU, the error makes all contexts of the process
// unusable: queued work is dropped, and every later call that needs the device returns the error.
CUresult sticky_error();
void fail_process(CUresult error);

// The functions below throw Error. They take the lock, except those that must be called with the lock held.

// Adds `work` to the stream and returns its task. If the stream is being captured, adds `work` to the graph
// instead and returns null.
TaskPtr submit(const StreamPtr& stream, Work work);
// Waits for the task. A null task is already done. Returns the sticky error.
CUresult wait(const TaskPtr& task);
// The newest task of each stream of the context that has unfinished work.
std::vector<TaskPtr> newest_tasks(Context& context);
CUresult synchronize(Context& context);

void record(Event& event, const StreamPtr& stream);
void wait_event(const StreamPtr& stream, Event& event);

void begin_capture(const StreamPtr& stream, CUstreamCaptureMode mode);
std::shared_ptr<Graph> end_capture(const StreamPtr& stream);
bool capturing(const Stream& stream);
// Call this when the stream ends, with the lock held. Invalidates the capture that the stream is part of, if
// there is one, and ends the capture if it began on the stream.
void leave_capture(Stream& stream);
// Call this in a function that is not allowed while this stream, or any stream of the context, is captured.
// If there is a capture, invalidates it and throws.
void forbid_capture(Stream& stream);
void forbid_capture(Context& context);
// Call this in a function that CUDA forbids during some captures. Throws if the modes of the captures and of
// this thread forbid the call.
void forbid_unsafe_call();
CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode);

}  // namespace sharedgpu::simgpu
