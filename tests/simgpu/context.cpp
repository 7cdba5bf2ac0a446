// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/context.h"

#include <mutex>

#include "tests/simgpu/driver.h"

namespace sharedgpu::simgpu {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// A thread's default streams end with the thread. Work that is queued in these streams is still done.
class ThreadEnd {
 public:
  ~ThreadEnd() {
    for (const std::weak_ptr<Context>& used : contexts_)
      if (ContextPtr context = used.lock()) context->end_thread(std::this_thread::get_id());
  }
  void watch(const ContextPtr& context) { contexts_.push_back(context); }

 private:
  std::vector<std::weak_ptr<Context>> contexts_;
};

}  // namespace

Context::Context(unsigned flags, int device)
    : flags_(flags), device_(device), id_(next_id()), heap_(*driver().space, *driver().gpu(device).store) {}
Context::~Context() = default;

ContextPtr Context::create(unsigned flags, int device) {
  Driver& d = driver();
  require(d.gpu(device).shared->charge({}, d.settings.context), CUDA_ERROR_OUT_OF_MEMORY);
  return ContextPtr(new Context(flags, device));
}

void Context::destroy() {
  if (destroyed_.exchange(true)) return;
  synchronize(*this);
  {
    std::lock_guard lock(order_lock());
    for (auto it = streams.begin(); it != streams.end();) {
      StreamPtr stream = *it;
      leave_capture(*stream);
      stream->closed = true;
      stream->wake.notify_all();
      it = stream->running ? std::next(it) : streams.erase(it);
    }
    legacy_ = nullptr;
    thread_streams_.clear();
  }
  heap_.clear();
  Driver& d = driver();
  d.gpu(device_).managed->free_all_of(this);
  d.gpu(device_).shared->give_back({}, d.settings.context);
}

StreamPtr Context::make_stream(Stream::Kind kind, unsigned flags, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->context = shared_from_this();
  stream->kind = kind;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = next_id();
  std::lock_guard lock(order_lock());
  require(!destroyed_, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  streams.insert(stream);
  return stream;
}

StreamPtr Context::legacy_stream() {
  {
    std::lock_guard lock(order_lock());
    if (legacy_) return legacy_;
  }
  StreamPtr made = make_stream(Stream::Kind::legacy, 0, 0);
  std::lock_guard lock(order_lock());
  if (!legacy_) legacy_ = made;
  return legacy_;
}

StreamPtr Context::thread_stream() {
  auto thread = std::this_thread::get_id();
  {
    std::lock_guard lock(order_lock());
    auto found = thread_streams_.find(thread);
    if (found != thread_streams_.end()) return found->second;
  }
  static thread_local ThreadEnd thread_end;
  thread_end.watch(shared_from_this());
  StreamPtr made = make_stream(Stream::Kind::blocking, 0, 0);
  std::lock_guard lock(order_lock());
  return thread_streams_[thread] = made;
}

void Context::end_thread(std::thread::id thread) {
  std::lock_guard lock(order_lock());
  auto found = thread_streams_.find(thread);
  if (found == thread_streams_.end()) return;
  StreamPtr stream = found->second;
  thread_streams_.erase(found);
  leave_capture(*stream);
  stream->closed = true;
  stream->wake.notify_all();
  if (!stream->running) streams.erase(stream);
}

// The stacks are never destroyed, not even at the end of their thread: destructors of the thread's other
// variables may still use CUDA.
std::vector<ContextPtr>& context_stack() {
  using Stack = std::vector<ContextPtr>;
  static auto* lock = new std::mutex;
  static auto* stacks = new std::vector<std::unique_ptr<Stack>>;
  static thread_local Stack* stack = nullptr;
  if (stack == nullptr) {
    std::lock_guard guard(*lock);
    stack = stacks->emplace_back(std::make_unique<Stack>()).get();
  }
  return *stack;
}

ContextPtr current_context() {
  auto& stack = context_stack();
  require(!stack.empty() && stack.back() != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  require(!stack.back()->destroyed(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  return stack.back();
}

}  // namespace sharedgpu::simgpu
