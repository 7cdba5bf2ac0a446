// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/work.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "tests/simgpu/driver.h"

namespace sharedgpu::simgpu {
namespace {

constexpr Nanoseconds kWaitStep = std::chrono::microseconds(20);
constexpr std::size_t kPiece = std::size_t{4} << 20;

// If the range is managed memory of range.device, moves its pages there, as page faults do. Managed memory of
// other devices does not move; range.device accesses it over the bus.
void page_in(const Range& range) { driver().gpu(range.device).managed->touch(range); }

// Holds a Use while work waits for the device and runs. The Use includes the waiting, since a real GPU may
// already run the work at that time. end() returns false if the Use was torn.
class UseGuard {
 public:
  explicit UseGuard(const std::vector<Range>& ranges) : use_(driver().space->begin_use(ranges)) {}
  ~UseGuard() {
    if (use_) driver().space->end_use(use_);
  }
  UseGuard(const UseGuard&) = delete;
  UseGuard& operator=(const UseGuard&) = delete;
  const UsePtr& get() const { return use_; }
  // Call this only after the device has become free for the work.
  void page_in() const {
    for (const Range& range : use_->ranges) simgpu::page_in(range);
  }
  bool end() { return driver().space->end_use(std::exchange(use_, nullptr)); }

 private:
  UsePtr use_;
};

std::vector<Range> on(int device, std::vector<Range> ranges) {
  for (Range& range : ranges) range.device = device;
  return ranges;
}

// If the kernel has a table of pointers, which is the first of `ranges`, adds the ranges that the table
// points to. Returns false if the kernel cannot read the table.
bool add_reached(int device, const Kernel& kernel, const Arguments& arguments, std::vector<Range>& ranges) {
  if (kernel.reached == nullptr) return true;
  UseGuard use({ranges.front()});
  if (!use.get()) return false;
  use.page_in();
  std::vector<Range> reached;
  const bool read =
      driver().space->touch(use.get(), [&] { reached = on(device, kernel.reached(arguments)); });
  if (!read || !use.end()) return false;
  ranges.insert(ranges.end(), reached.begin(), reached.end());
  return true;
}

// The time that the kernel's accesses to memory of the host take.
Nanoseconds bus_time(const Kernel& kernel, const std::vector<Range>& ranges) {
  Bytes moved;
  for (const Range& range : ranges)
    moved.count += driver().space->bytes_on_host(range).count * (range.written ? 1 : kernel.reads);
  return driver().copy_time(moved);
}

CUresult run_kernel(const Context& context, const Kernel& kernel, const Arguments& arguments) {
  Driver& d = driver();
  SharedDevice& device = *d.gpu(context.device()).shared;
  std::vector<Range> ranges = on(context.device(), kernel.ranges(arguments));
  if (!add_reached(context.device(), kernel, arguments, ranges)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  auto extra = static_cast<double>((d.settings.launch + kernel.extra(arguments)).count());
  Nanoseconds duration = std::max(d.memory_time(kernel.traffic(arguments)), bus_time(kernel, ranges)) +
                         Nanoseconds(static_cast<std::int64_t>(extra * d.settings.slowdown));
  UseGuard use(ranges);
  if (!use.get()) return CUDA_ERROR_ILLEGAL_ADDRESS;
  TimePoint start = device.occupy(Engine::compute, duration);
  device.count_kernel();
  use.page_in();
  // The kernel changes memory only at the end of its duration, so that a read that does not wait for it sees
  // the old contents.
  sleep_until(start + duration);
  if (d.is_lost(context.device())) return lost_error();
  CUresult result = CUDA_SUCCESS;
  Reach reach = [&](Range range) {
    range.device = context.device();
    page_in(range);
    return d.space->extend(use.get(), range);
  };
  if (!d.space->touch(use.get(), [&] { result = kernel.run(arguments, reach); }))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (!use.end()) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return result;
}

// Divides `height` rows of `width` bytes into pieces, and calls piece(row, offset, size) for each. The calls
// are spread evenly over the duration. Returns false if a call returned false or the device is lost.
template <class Piece>
bool in_pieces(int device, std::size_t width, std::size_t height, TimePoint start, Nanoseconds duration,
               Piece&& piece) {
  double total = static_cast<double>(width) * static_cast<double>(height);
  std::size_t done = 0;
  std::size_t since = 0;
  for (std::size_t row = 0; row < height; ++row) {
    for (std::size_t offset = 0; offset < width;) {
      std::size_t size = std::min(kPiece, width - offset);
      done += size;
      since += size;
      if (since >= kPiece || (row + 1 == height && offset + size == width)) {
        double share = static_cast<double>(done) / total;
        sleep_until(start +
                    Nanoseconds(static_cast<std::int64_t>(static_cast<double>(duration.count()) * share)));
        since = 0;
      }
      if (driver().is_lost(device) || !piece(row, offset, size)) return false;
      offset += size;
    }
  }
  return true;
}

CUresult run_copy(const Context& context, const CopyPlan& plan) {
  if (plan.size().count == 0) return CUDA_SUCCESS;
  Driver& d = driver();
  SharedDevice& device = *d.gpu(context.device()).shared;
  const bool to_mapped = d.space->reservation_at(plan.target).has_value();
  const bool from_mapped = d.space->reservation_at(plan.source).has_value();
  // Returns how many bytes of one side of the copy are on the host.
  auto on_host = [&](bool mapped, const Range& range) {
    return mapped ? std::min(d.space->bytes_on_host(range), plan.size()) : plan.size();
  };
  std::vector<Range> ranges;
  if (to_mapped) ranges.push_back(plan.target_range());
  if (from_mapped) ranges.push_back(plan.source_range());
  UseGuard use(ranges);
  if (!use.get()) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const Bytes to_host = on_host(to_mapped, plan.target_range());
  const Bytes from_host = on_host(from_mapped, plan.source_range());
  const Bytes crossing = std::max(to_host, from_host);
  TimePoint start = now();
  Nanoseconds duration{};
  if (crossing == Bytes{}) {
    duration = d.memory_time({plan.size().count * 2});
    start = device.occupy(Engine::compute, duration);
  } else if (to_mapped || from_mapped) {
    Engine engine = to_host < plan.size() ? Engine::host_to_device : Engine::device_to_host;
    duration = d.copy_time(crossing) + d.memory_time({minus(plan.size(), crossing).count * 2});
    start = device.occupy(engine, duration);
    if (to_host < plan.size() || from_host < plan.size()) device.count_copy(engine, crossing);
  }
  use.page_in();
  bool whole =
      in_pieces(context.device(), plan.width, plan.height, start, duration,
                [&](std::size_t row, std::size_t offset, std::size_t size) {
                  return d.space->touch(use.get(), [&] {
                    std::memmove(pointer(plan.target + row * plan.target_pitch + offset),
                                 pointer<const void>(plan.source + row * plan.source_pitch + offset), size);
                  });
                });
  if (d.is_lost(context.device())) return lost_error();
  return use.end() && whole ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

template <class T>
void fill_row(Address at, std::uint32_t value, std::size_t count) {
  std::fill_n(pointer<T>(at), count, static_cast<T>(value));
}

CUresult run_set(const Context& context, const SetPlan& plan) {
  if (plan.width == 0 || plan.height == 0) return CUDA_SUCCESS;
  Driver& d = driver();
  const Bytes size{plan.width * plan.height * plan.element};
  const Bytes on_host = std::min(d.space->bytes_on_host(plan.range()), size);
  Nanoseconds duration = d.memory_time(minus(size, on_host)) + d.copy_time(on_host);
  UseGuard use(on(context.device(), {plan.range()}));
  if (!use.get()) return CUDA_ERROR_ILLEGAL_ADDRESS;
  TimePoint start = d.gpu(context.device()).shared->occupy(Engine::compute, duration);
  use.page_in();
  sleep_until(start + duration);
  if (d.is_lost(context.device())) return lost_error();
  bool whole = d.space->touch(use.get(), [&] {
    for (std::size_t row = 0; row < plan.height; ++row) {
      Address at = plan.target + row * plan.pitch;
      if (plan.element == 1) fill_row<std::uint8_t>(at, plan.value, plan.width);
      if (plan.element == 2) fill_row<std::uint16_t>(at, plan.value, plan.width);
      if (plan.element == 4) fill_row<std::uint32_t>(at, plan.value, plan.width);
    }
  });
  return use.end() && whole ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

bool fulfilled(std::uint32_t found, std::uint32_t value, unsigned how) {
  switch (how) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return found == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (found & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return ~(found | value) != 0;
    default:
      return static_cast<std::int32_t>(found - value) >= 0;
  }
}

// run_wait() and semaphore waits do not occupy the device: other streams and processes continue.
CUresult run_wait(const Context& context, Address word, std::uint32_t value, unsigned how) {
  Driver& d = driver();
  UseGuard use(
      on(context.device(), {{.begin = word, .size = {sizeof value}, .written = false, .atomic = true}}));
  if (!use.get()) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (bool done = false; !done; sleep_until(now() + kWaitStep)) {
    if (d.is_lost(context.device())) return lost_error();
    if (sticky_error() != CUDA_SUCCESS) return sticky_error();
    auto look = [&] { done = fulfilled(std::atomic_ref(*pointer<std::uint32_t>(word)).load(), value, how); };
    if (!d.space->touch(use.get(), look)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  return use.end() ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult run_write(const Context& context, Address word, std::uint32_t value) {
  UseGuard use(on(context.device(), {{.begin = word, .size = {sizeof value}, .atomic = true}}));
  auto write = [&] { std::atomic_ref(*pointer<std::uint32_t>(word)).store(value); };
  if (!use.get() || !driver().space->touch(use.get(), write)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return use.end() ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

}  // namespace

Work kernel_work(const Kernel& kernel, Arguments arguments) {
  return {.type = CU_GRAPH_NODE_TYPE_KERNEL,
          .run =
              [&kernel, arguments](Context& context) {
                Driver& d = driver();
                if (++d.launches == d.settings.launch_fault) return CUDA_ERROR_LAUNCH_FAILED;
                return run_kernel(context, kernel, arguments);
              },
          .ranges = [&kernel, arguments] { return kernel.ranges(arguments); }};
}

Work copy_work(CopyPlan plan) {
  return {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
          .run = [plan](Context& context) { return run_copy(context, plan); },
          .ranges =
              [plan] {
                return std::vector<Range>{plan.target_range(), plan.source_range()};
              }};
}

Work set_work(SetPlan plan) {
  return {.type = CU_GRAPH_NODE_TYPE_MEMSET,
          .run = [plan](Context& context) { return run_set(context, plan); },
          .ranges = [plan] { return std::vector<Range>{plan.range()}; }};
}

Work graph_work(std::vector<Work> all_works) {
  const auto works = std::make_shared<const std::vector<Work>>(std::move(all_works));
  return {.type = CU_GRAPH_NODE_TYPE_GRAPH,
          .run =
              [works](Context& context) {
                for (const Work& work : *works) {
                  if (!work.run) continue;
                  CUresult result = work.run(context);
                  if (result != CUDA_SUCCESS) return result;
                }
                return CUDA_SUCCESS;
              },
          .ranges =
              [works] {
                std::vector<Range> all;
                for (const Work& work : *works) {
                  if (!work.ranges) continue;
                  const std::vector<Range> ranges = work.ranges();
                  all.insert(all.end(), ranges.begin(), ranges.end());
                }
                return all;
              }};
}

Work prefetch_work(const Range& range, bool to_device) {
  return {CU_GRAPH_NODE_TYPE_EMPTY, [=](Context&) {
            Driver& d = driver();
            Managed* const managed = d.managed_at(range.begin);
            if (managed == nullptr) return CUDA_SUCCESS;  // the memory has been freed meanwhile
            const Bytes moved = to_device ? managed->bring(range) : managed->send_away(range);
            SharedDevice& device = *d.gpu(range.device).shared;
            const Engine engine = to_device ? Engine::host_to_device : Engine::device_to_host;
            const Nanoseconds duration = d.copy_time(moved);
            if (moved != Bytes{}) sleep_until(device.occupy(engine, duration) + duration);
            device.count_copy(engine, moved);
            return CUDA_SUCCESS;
          }};
}

Work write_work(Address word, std::uint32_t value) {
  return {CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [=](Context& context) { return run_write(context, word, value); }};
}

Work wait_work(Address word, std::uint32_t value, unsigned how) {
  return {CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
          [=](Context& context) { return run_wait(context, word, value, how); }};
}

Work signal_work(std::vector<SemaphoreValue> values) {
  return {CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, [values = std::move(values)](Context&) {
            for (const SemaphoreValue& each : values) each.semaphore->signal(each.value);
            return CUDA_SUCCESS;
          }};
}

// Like the wait of run_wait(), this wait leaves the device free for other work.
Work semaphore_wait_work(std::vector<SemaphoreValue> values) {
  return {CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, [values = std::move(values)](Context& context) {
            for (const SemaphoreValue& each : values) {
              while (!each.semaphore->has_reached(each.value)) {
                if (driver().is_lost(context.device())) return lost_error();
                if (sticky_error() != CUDA_SUCCESS) return sticky_error();
                sleep_until(now() + kWaitStep);
              }
            }
            return CUDA_SUCCESS;
          }};
}

Work host_work(CUhostFn function, void* data) {
  return {CU_GRAPH_NODE_TYPE_HOST, [=](Context&) {
            function(data);
            return CUDA_SUCCESS;
          }};
}

}  // namespace sharedgpu::simgpu
