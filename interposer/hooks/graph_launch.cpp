// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/graph_launch.h"

#include <atomic>
#include <mutex>

#include "interposer/backlog/in_order.h"
#include "interposer/backlog/streams.h"
#include "interposer/backlog/submission.h"
#include "interposer/driver/beside_captures.h"
#include "interposer/driver/call.h"
#include "interposer/gate/clock.h"
#include "interposer/hooks/graph_records.h"
#include "interposer/hooks/oversized.h"
#include "interposer/process/process.h"
#include "interposer/session/log.h"

namespace sharedgpu::hooks {
namespace {

constinit std::atomic<bool> graphs_from_kernels{false};

// Launches single steps on a stream. Each step passes the gate for itself.
class StepLauncher {
 public:
  explicit StepLauncher(CUstream stream) : stream_(stream) {}

  CUresult operator()(const UnknownStep& /*step*/) const { return CUDA_ERROR_NOT_SUPPORTED; }
  CUresult operator()(const EmptyStep& /*step*/) const { return CUDA_SUCCESS; }

  CUresult operator()(const KernelStep& step) const {
    ArgumentCopy arguments = *step.arguments;
    std::vector<CUlaunchAttribute> attributes = step.attributes;
    std::vector<void*> values;
    for (const std::size_t offset : arguments.offsets) values.push_back(arguments.bytes.data() + offset);
    std::size_t size = arguments.bytes.size();
    void* buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, arguments.bytes.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                      &size, CU_LAUNCH_PARAM_END};
    void** const extra = arguments.as_buffer ? buffer : nullptr;
    CUlaunchConfig config{};
    config.gridDimX = step.numbers[0];
    config.gridDimY = step.numbers[1];
    config.gridDimZ = step.numbers[2];
    config.blockDimX = step.numbers[3];
    config.blockDimY = step.numbers[4];
    config.blockDimZ = step.numbers[5];
    config.sharedMemBytes = step.numbers[6];
    config.hStream = stream_;
    config.attrs = attributes.data();
    config.numAttrs = static_cast<unsigned>(attributes.size());
    OversizedLaunch launch(
        {.kernel = step.kernel,
         .parameters = values.empty() ? 0 : reinterpret_cast<std::uintptr_t>(values.data()),
         .extra = reinterpret_cast<std::uintptr_t>(extra),
         .stream = word()});
    const backlog::Submission submission(word(), false);
    launch.begin();
    const CUresult result =
        SHAREDGPU_REAL(cuLaunchKernelEx, &config, reinterpret_cast<CUfunction>(step.kernel),
                       values.empty() ? nullptr : values.data(), extra);
    launch.end(result == CUDA_SUCCESS);
    return result;
  }

  CUresult operator()(const CUDA_MEMCPY3D& copy) const {
    const backlog::Submission submission(word(), false);
    const bool linear =
        copy.srcMemoryType != CU_MEMORYTYPE_ARRAY && copy.dstMemoryType != CU_MEMORYTYPE_ARRAY;
    if (!linear || copy.Height > 1 || copy.Depth > 1)
      return SHAREDGPU_REAL(cuMemcpy3DAsync_v2, &copy, stream_);
    // cuMemcpy3DAsync limits the pitch, and a single row may be longer than this limit.
    const CUdeviceptr target = start(copy.dstMemoryType, copy.dstHost, copy.dstDevice) + copy.dstXInBytes +
                               (copy.dstZ * copy.dstHeight + copy.dstY) * copy.dstPitch;
    const CUdeviceptr source = start(copy.srcMemoryType, copy.srcHost, copy.srcDevice) + copy.srcXInBytes +
                               (copy.srcZ * copy.srcHeight + copy.srcY) * copy.srcPitch;
    const std::size_t bytes = copy.Height == 0 || copy.Depth == 0 ? 0 : copy.WidthInBytes;
    return SHAREDGPU_REAL(cuMemcpyAsync, target, source, bytes, stream_);
  }

  CUresult operator()(const CUDA_MEMSET_NODE_PARAMS& fill) const {
    const backlog::Submission submission(word(), false);
    const auto byte = static_cast<unsigned char>(fill.value);
    const auto half = static_cast<unsigned short>(fill.value);
    if (fill.height > 1) {
      if (fill.elementSize == 1)
        return SHAREDGPU_REAL(cuMemsetD2D8Async, fill.dst, fill.pitch, byte, fill.width, fill.height,
                              stream_);
      if (fill.elementSize == 2)
        return SHAREDGPU_REAL(cuMemsetD2D16Async, fill.dst, fill.pitch, half, fill.width, fill.height,
                              stream_);
      return SHAREDGPU_REAL(cuMemsetD2D32Async, fill.dst, fill.pitch, fill.value, fill.width, fill.height,
                            stream_);
    }
    if (fill.elementSize == 1) return SHAREDGPU_REAL(cuMemsetD8Async, fill.dst, byte, fill.width, stream_);
    if (fill.elementSize == 2) return SHAREDGPU_REAL(cuMemsetD16Async, fill.dst, half, fill.width, stream_);
    return SHAREDGPU_REAL(cuMemsetD32Async, fill.dst, fill.value, fill.width, stream_);
  }

 private:
  static CUdeviceptr start(CUmemorytype type, const void* host, CUdeviceptr device) {
    return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
  }
  backlog::StreamWord word() const { return reinterpret_cast<backlog::StreamWord>(stream_); }

  CUstream stream_;
};

// If the driver refuses the first step that is not empty, the graph is launched whole, so the program gets
// the result of plain CUDA. If the driver refuses a later step, a part of the graph is already in the stream.
// The remaining steps are then left out, and the program gets the error, as when a kernel of a graph fails.
CUresult launch_singly(const GraphSnapshot& graph, CUstream stream, const std::function<CUresult()>& whole) {
  const StepLauncher launcher(stream);
  bool begun = false;
  for (const auto& step : graph.steps) {
    const CUresult result = std::visit(launcher, *step);
    if (result != CUDA_SUCCESS) return begun ? result : whole();
    begun = begun || !std::holds_alternative<EmptyStep>(*step);
  }
  debug("a graph of %zu nodes was launched node by node", graph.steps.size());
  return CUDA_SUCCESS;
}

// The nodes of a graph may belong to any context of the process, and the driver does not tell which one.
bool one_context() {
  const Process* const mine = Process::get();
  return mine != nullptr && mine->contexts().count() == 1;
}

// A graph with a single kernel is launched like the kernel alone, so that the launch can be timed.
bool should_run_singly(const GraphSnapshot& graph, const GraphLaunches& launches,
                       session::Residence& residence) {
  if (!graph.single || !launches.known || graph.uses.empty() || !one_context() ||
      graphs_from_kernels.load(std::memory_order_relaxed))
    return false;
  return graph.uses.size() == 1 || residence.exceeds_window(graph.uses, gate::now());
}

CUresult launch_recorded(CUgraphExec graph, GraphLaunches& launches, CUstream stream,
                         const std::function<CUresult()>& whole) {
  const auto snapshot = graph_records().snapshot(reinterpret_cast<std::uintptr_t>(graph));
  session::DeviceSession* const session = oversized_session();
  if (snapshot == nullptr || session == nullptr) return whole();
  session::Residence& residence = *session->residence();
  launches.last_single = should_run_singly(*snapshot, launches, residence);
  if (launches.last_single) return launch_singly(*snapshot, stream, whole);
  bring_in(*session, residence.choose(snapshot->uses, gate::now()).exchange);
  return whole();
}

// A fence after all that the stream has been given so far; null on failure.
FencePtr fence_behind(CUstream stream) {
  const driver::BesideCaptures beside;
  CUresult result = CUDA_SUCCESS;
  const auto place = backlog::locate(stream);
  return place ? backlog::mark(*place, &result) : nullptr;
}

}  // namespace

void kernels_launch_graphs() { graphs_from_kernels = true; }

CUresult launch_graph(CUgraphExec graph, CUstream stream, bool own, const std::function<CUresult()>& whole) {
  using backlog::InOrder;
  if (stream == nullptr) stream = own ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  const auto launches = graph_records().launches(reinterpret_cast<std::uintptr_t>(graph));
  if (launches == nullptr) {
    const InOrder in_order(reinterpret_cast<backlog::StreamWord>(stream), own);
    return whole();
  }
  const std::lock_guard one_after_the_other(launches->mutex);
  const InOrder as_one(reinterpret_cast<backlog::StreamWord>(stream), own, InOrder::Extent::sequence);
  if (backlog::captured(stream)) return whole();
  if (launches->last != nullptr) backlog::wait_in(stream, *launches->last);
  launches->last_single = false;
  const CUresult result = launch_recorded(graph, *launches, stream, whole);
  launches->last = fence_behind(stream);
  launches->known = launches->last != nullptr;
  return result;
}

}  // namespace sharedgpu::hooks
