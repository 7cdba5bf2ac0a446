// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/stream.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "tests/simgpu/driver.h"

namespace sharedgpu::simgpu {
namespace {

// Wakes host threads that wait for tasks.
std::condition_variable& task_done() {
  static auto* condition = new std::condition_variable;
  return *condition;
}

bool all_done(const std::vector<TaskPtr>& tasks) {
  return std::all_of(tasks.begin(), tasks.end(), [](const TaskPtr& task) { return task->done; });
}

CUresult run(const Task& task, Context& context) {
  const AddressSpace& space = *driver().space;
  if (space.torn(task.queued)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  CUresult result = CUDA_ERROR_UNKNOWN;
  try {
    result = task.work.run(context);
  } catch (const Error& error) {
    result = error.code;
  } catch (...) {
  }
  // While a graph's first nodes run, its later nodes are still queued. So the queued use may have been torn
  // during the run.
  return result == CUDA_SUCCESS && space.torn(task.queued) ? CUDA_ERROR_ILLEGAL_ADDRESS : result;
}

// Runs the stream's tasks until the stream is closed and its queue is empty.
void work_off(StreamPtr stream) {
  prctl(PR_SET_NAME, "simgpu-stream");
  prctl(PR_SET_TIMERSLACK, 1);
  std::unique_lock lock(order_lock());
  while (true) {
    stream->wake.wait(lock, [&] { return stream->closed || !stream->queue.empty(); });
    if (stream->queue.empty()) break;
    TaskPtr task = stream->queue.front();
    for (const TaskPtr& other : task->after)
      if (!other->done) other->waiting.push_back(stream.get());
    stream->wake.wait(lock, [&] { return all_done(task->after); });
    task->after.clear();
    Context& context = *stream->context;
    if (task->work.run && sticky_error() == CUDA_SUCCESS) {
      lock.unlock();
      CUresult result = run(*task, context);
      if (result != CUDA_SUCCESS) fail_process(result);
      task->work.run = nullptr;  // destroyed outside the lock
      lock.lock();
    }
    if (task->queued) driver().space->retire(std::exchange(task->queued, nullptr));
    task->done = true;
    task->finished = now();
    stream->queue.pop_front();
    for (Stream* other : task->waiting) other->wake.notify_all();
    task->waiting.clear();
    task_done().notify_all();
  }
  stream->context->streams.erase(stream);
  stream->running = false;
  lock.unlock();
}

void start_worker(const StreamPtr& stream) {
  // The worker must not handle the program's signals.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(work_off, stream).detach();
    stream->running = true;
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  require(stream->running, CUDA_ERROR_OUT_OF_MEMORY);
}

// Adds to `after` the tasks that precede a task of `stream` by the rules of the legacy default stream. Call
// this with the lock held.
void order_by_legacy(const StreamPtr& stream, std::vector<TaskPtr>& after) {
  if (stream->kind == Stream::Kind::non_blocking) return;
  for (const StreamPtr& other : stream->context->streams) {
    if (other == stream || !other->last || other->last->done) continue;
    bool ordered = stream->kind == Stream::Kind::legacy ? other->kind == Stream::Kind::blocking
                                                        : other->kind == Stream::Kind::legacy;
    if (ordered) after.push_back(other->last);
  }
}

// The captures that have begun and not ended, in this process.
std::vector<CapturePtr>& open_captures() {
  static auto* captures = new std::vector<CapturePtr>;
  return *captures;
}

std::atomic<CUresult> first_error{CUDA_SUCCESS};

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void add_node(const StreamPtr& stream, Work work) {
  require(!stream->capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  auto node = std::make_shared<Node>(Node{std::move(work), stream->frontier});
  stream->frontier = {node.get()};
  stream->capture->graph->nodes.push_back(std::move(node));
}

// Throws, and invalidates the captures, if work in the legacy stream would have to wait for work that is
// being captured. Call this with the lock held.
void forbid_implicit_dependency(const Stream& stream) {
  bool found = false;
  for (const StreamPtr& other : stream.context->streams) {
    if (!other->capture || other->kind != Stream::Kind::blocking) continue;
    other->capture->invalidated = true;
    found = true;
  }
  require(!found, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void close_capture(const CapturePtr& capture) {
  capture->ended = true;
  for (Stream* member : capture->streams) {
    member->capture = nullptr;
    member->frontier.clear();
  }
  std::erase(open_captures(), capture);
}

// Returns true if the origin stream has joined all other streams of the capture.
bool all_joined(const Capture& capture) {
  std::set<const Node*> open;
  for (const auto& node : capture.graph->nodes) {
    open.insert(node.get());
    for (const Node* before : node->after) open.erase(before);
  }
  for (const Node* node : capture.origin->frontier) open.erase(node);
  return open.empty();
}

}  // namespace

std::mutex& order_lock() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

CUresult sticky_error() { return first_error.load(); }

void fail_process(CUresult error) {
  CUresult none = CUDA_SUCCESS;
  first_error.compare_exchange_strong(none, error);
}

TaskPtr submit(const StreamPtr& stream, Work work) {
  std::lock_guard lock(order_lock());
  require(!stream->closed, CUDA_ERROR_INVALID_HANDLE);
  if (stream->capture) {
    add_node(stream, std::move(work));
    return nullptr;
  }
  if (stream->kind == Stream::Kind::legacy) forbid_implicit_dependency(*stream);
  if (!stream->running)
    start_worker(stream);  // starts the worker first, so that nothing is queued if no thread can be created
  auto task = std::make_shared<Task>();
  task->work = std::move(work);
  if (task->work.ranges) task->queued = driver().space->queue(task->work.ranges());
  task->after = std::move(stream->pending_waits);
  stream->pending_waits.clear();
  order_by_legacy(stream, task->after);
  stream->queue.push_back(task);
  stream->last = task;
  stream->wake.notify_all();
  return task;
}

CUresult wait(const TaskPtr& task) {
  if (task) {
    std::unique_lock lock(order_lock());
    task_done().wait(lock, [&] { return task->done; });
  }
  return sticky_error();
}

std::vector<TaskPtr> newest_tasks(Context& context) {
  std::lock_guard lock(order_lock());
  std::vector<TaskPtr> tasks;
  for (const StreamPtr& stream : context.streams)
    if (stream->last && !stream->last->done) tasks.push_back(stream->last);
  return tasks;
}

CUresult synchronize(Context& context) {
  for (const TaskPtr& task : newest_tasks(context)) wait(task);
  return sticky_error();
}

void record(Event& event, const StreamPtr& stream) {
  {
    std::lock_guard lock(order_lock());
    if (stream->capture) {
      require(!stream->capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      event.capture = stream->capture;
      event.nodes = stream->frontier;
      event.recorded = nullptr;
      return;
    }
  }
  TaskPtr task = submit(stream, {CU_GRAPH_NODE_TYPE_EVENT_RECORD, nullptr});
  std::lock_guard lock(order_lock());
  event.capture = nullptr;
  event.nodes.clear();
  event.recorded = task;
}

void wait_event(const StreamPtr& stream, Event& event) {
  std::lock_guard lock(order_lock());
  if (event.capture) {
    require(!event.capture->ended, CUDA_ERROR_CAPTURED_EVENT);
    require(!event.capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    require(stream->kind != Stream::Kind::legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (!stream->capture) {
      stream->capture = event.capture;
      stream->frontier.clear();
      event.capture->streams.insert(stream.get());
    } else if (stream->capture != event.capture) {
      stream->capture->invalidated = event.capture->invalidated = true;
      throw Error{CUDA_ERROR_STREAM_CAPTURE_MERGE};
    }
    for (Node* node : event.nodes)
      if (std::find(stream->frontier.begin(), stream->frontier.end(), node) == stream->frontier.end())
        stream->frontier.push_back(node);
    return;
  }
  if (stream->capture) {
    if (!event.recorded) return;
    stream->capture->invalidated = true;
    throw Error{CUDA_ERROR_STREAM_CAPTURE_ISOLATION};
  }
  if (event.recorded && !event.recorded->done) stream->pending_waits.push_back(event.recorded);
}

void begin_capture(const StreamPtr& stream, CUstreamCaptureMode mode) {
  static std::uint64_t last_id = 0;
  std::lock_guard lock(order_lock());
  require(stream->kind != Stream::Kind::legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  require(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
  auto capture = std::make_shared<Capture>();
  capture->id = ++last_id;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream.get();
  capture->streams = {stream.get()};
  stream->capture = capture;
  stream->frontier.clear();
  open_captures().push_back(capture);
}

std::shared_ptr<Graph> end_capture(const StreamPtr& stream) {
  std::lock_guard lock(order_lock());
  CapturePtr capture = stream->capture;
  require(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
  require(capture->origin == stream.get(), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
    throw Error{CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD};
  bool joined = all_joined(*capture);
  close_capture(capture);
  require(!capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  require(joined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  return capture->graph;
}

bool capturing(const Stream& stream) {
  std::lock_guard lock(order_lock());
  return stream.capture != nullptr;
}

void leave_capture(Stream& stream) {
  CapturePtr capture = stream.capture;
  if (!capture) return;
  capture->invalidated = true;
  if (capture->origin == &stream) return close_capture(capture);
  capture->streams.erase(&stream);
  stream.capture = nullptr;
}

void forbid_capture(Stream& stream) {
  std::lock_guard lock(order_lock());
  if (!stream.capture) {
    if (stream.kind == Stream::Kind::legacy) forbid_implicit_dependency(stream);
    return;
  }
  stream.capture->invalidated = true;
  throw Error{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
}

void forbid_capture(Context& context) {
  std::lock_guard lock(order_lock());
  bool found = false;
  for (const StreamPtr& stream : context.streams) {
    if (!stream->capture) continue;
    stream->capture->invalidated = true;
    found = true;
  }
  require(!found, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void forbid_unsafe_call() {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
  std::lock_guard lock(order_lock());
  bool found = false;
  for (const CapturePtr& capture : open_captures()) {
    bool own = capture->thread == std::this_thread::get_id();
    bool forbids =
        own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
            : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!forbids) continue;
    capture->invalidated = true;
    found = true;
  }
  require(!found, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

}  // namespace sharedgpu::simgpu
